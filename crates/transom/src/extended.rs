//! The operations that the header calls through the table beside a context.

use crate::context::OpenDevice;
use std::mem::{offset_of, size_of};
use transom_abi::*;

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

impl OpenDevice {
    /// The table, which grows at its front, if it reaches this offset.
    pub(crate) fn extended_to(&self, offset: usize) -> Option<*const verbs_context> {
        // SAFETY: the context is open.
        if unsafe { (*self.context).abi_compat } != __VERBS_ABI_IS_EXTENDED {
            return None;
        }
        let table = self
            .context
            .wrapping_byte_sub(offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        // SAFETY: the mark says that the context is the last part of a `verbs_context`.
        let size = unsafe { (*table).sz };
        (size >= size_of::<verbs_context>() - offset).then_some(table.cast_const())
    }
}
