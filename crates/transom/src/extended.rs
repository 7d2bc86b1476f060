//! The operations that the header calls through the table around a context.

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

#[cfg(all(test, feature = "software"))]
mod tests {
    use crate::{
        Access, CompletionQueue, Connected, Context, MemoryRegion, ProtectionDomain, Provider,
        QueuePair, Refused, Result, Rights, SharedReceiveQueue, Type1, Type2, Window, XrcDomain,
    };
    use rustix::io::Errno;
    use std::mem::offset_of;
    use std::time::Duration;
    use transom_abi::{ibv_context_ops, verbs_context};

    struct Party {
        context: Context,
        pd: ProtectionDomain,
        cq: CompletionQueue,
        qp: QueuePair<Connected>,
        shared: SharedReceiveQueue,
    }

    /// On a context whose operations nobody else uses.
    fn party() -> Party {
        let context = crate::devices(&Provider::software()).unwrap()[0].open().unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 16).unwrap();
        let qp = QueuePair::builder(&pd, &cq).build().unwrap();
        let itself = qp.endpoint();
        let qp = qp.connect(&itself).unwrap();
        let shared = SharedReceiveQueue::new(&pd, &cq, 4, 1).unwrap();
        Party { context, pd, cq, qp, shared }
    }

    fn is_unsupported<T>(outcome: Result<T>) {
        let errno = outcome.err().expect("an error").errno();
        assert_eq!(errno, Some(Errno::OPNOTSUPP.raw_os_error()));
    }

    #[test]
    fn an_operation_that_a_library_has_not_is_unsupported() {
        let without = |take: fn(&mut ibv_context_ops), call: fn(&Party)| {
            let party = party();
            // SAFETY: nobody else uses the context.
            take(unsafe { &mut (*party.context.inner.context).ops });
            call(&party);
        };
        without(
            |ops| ops.alloc_mw = None,
            |party| {
                is_unsupported(Window::<Type1>::alloc(&party.pd));
                is_unsupported(Window::<Type2>::alloc(&party.pd));
            },
        );
        without(
            |ops| ops.bind_mw = None,
            |party| {
                let region =
                    MemoryRegion::register(&party.pd, vec![0; 8], Access::MW_BIND).unwrap();
                let window = Window::<Type1>::alloc(&party.pd).unwrap();
                let refused = window.bind(&party.qp, &region.all(), Rights::READ).unwrap_err();
                let Refused { returned, error } = refused;
                is_unsupported::<()>(Err(error));
                drop(returned);
                region.deregister().unwrap();
            },
        );
        without(|ops| ops.post_send = None, |party| is_unsupported(party.qp.send(b"")));
        without(|ops| ops.post_recv = None, |party| is_unsupported(party.qp.receive(&[])));
        without(|ops| ops.post_srq_recv = None, |party| is_unsupported(party.shared.receive(&[])));
        without(|ops| ops.poll_cq = None, |party| is_unsupported(party.cq.poll()));
        without(
            |ops| ops.req_notify_cq = None,
            |party| is_unsupported(party.cq.wait(Duration::from_millis(1))),
        );
    }

    /// The table grows at its front: an older table ends before the newer operations.
    #[test]
    fn what_an_older_library_has_not_is_unsupported() {
        let party = party();
        let ends_at = |offset: usize| {
            let table = party.context.inner.extended_to(offset_of!(verbs_context, sz)).unwrap();
            // SAFETY: nobody else uses the context.
            unsafe { (*table.cast_mut()).sz = size_of::<verbs_context>() - offset };
        };
        let reaches = |offset: usize| party.context.inner.extended_to(offset).is_some();
        let newest = offset_of!(verbs_context, create_cq_ex);
        ends_at(newest);
        assert!(reaches(newest) && CompletionQueue::with_timestamps(&party.context, 4).is_ok());
        ends_at(newest + size_of::<usize>());
        assert!(!reaches(newest));
        is_unsupported(CompletionQueue::with_timestamps(&party.context, 4));
        // Down to the size itself and the fields behind it.
        ends_at(offset_of!(verbs_context, sz));
        is_unsupported(XrcDomain::private(&party.context));
        is_unsupported(party.context.port(1));
        is_unsupported(QueuePair::builder(&party.pd, &party.cq).batches().build());
        let attributes = party.context.attributes().unwrap();
        assert!(!attributes.atomic_writes && attributes.windows_type_1);
        // A function, not an operation.
        let older = Provider::changed(|verbs| verbs._ibv_query_gid_ex = None);
        is_unsupported(crate::devices(&older).unwrap()[0].open().unwrap().gid_type(1, 0));
    }
}
