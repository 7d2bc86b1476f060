//! The operations that the header calls through the table beside a context.

/// The operation of this name, if the provider has it.
macro_rules! extended {
    ($device:expr, $operation:ident) => {
        $device
            .extended_to(std::mem::offset_of!(transom_abi::verbs_context, $operation))
            // SAFETY: the table reaches the operation.
            .and_then(|table| unsafe { (*table).$operation })
    };
}

pub(crate) use extended;
