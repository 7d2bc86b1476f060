//! The life of memory windows.

use crate::common::{
    Departure, Pair, Party, TIMEOUT, alone, bytes_of, departs, failure, has_faults, need, path_of,
    status, until,
};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;
use transom::{
    Access, AsyncEventKind, Bound, Error, MemoryRegion, ProtectionDomain, RemoteSlice, Rights,
    Status, Type1, Type2, Type2Check, Window, WindowType,
};

/// A window of the owner over a part of a region.
fn bound<T: WindowType>(
    owner: &Party,
    region: &MemoryRegion<Vec<u8>>,
    range: Range<usize>,
    rights: Rights,
) -> Window<T, Bound> {
    let window = Window::alloc(&owner.pd).unwrap();
    let binding = window.bind(&owner.qp, &region.slice(range).unwrap(), rights).unwrap();
    binding.wait().unwrap()
}

/// Declares a test for each type of window.
macro_rules! on_each_type {
    ($($(#[$meta:meta])* fn $name:ident<$type:ident>() $body:block)*) => {
        $(mod $name {
            use super::*;

            fn on<$type: WindowType>() $body

            $(#[$meta])*
            #[test]
            fn type_1() {
                on::<Type1>();
            }

            $(#[$meta])*
            #[test]
            fn type_2() {
                on::<Type2>();
            }
        })*
    };
}

on_each_type! {
    /// Rules: T1-45, T1-54, T2-13, T2-36, INV-01, RA-41, RA-43, RA-44, RA-45
    fn a_window_is_granted_used_revoked_and_refuses<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = owner.bindable(&[b'.'; 64]);
        let local = peer.local(8);

        let window = bound::<T>(&owner, &region, 16..24, Rights::READ | Rights::WRITE);
        let grant = window.grant();
        assert_eq!(grant.length, 8);
        peer.qp.write(b"transom!", grant).unwrap().wait().unwrap();
        let completion = peer.qp.read(&[local.all()], grant).unwrap().wait().unwrap();
        assert_eq!(completion.length(), 8);
        assert_eq!(bytes_of(&local), b"transom!");
        assert_eq!(&bytes_of(&region)[12..28], b"....transom!....");

        let window = window.invalidate(&owner.qp).unwrap().wait().unwrap();
        assert_eq!(failure(peer.qp.write(b"too late", grant)), Status::RemoteAccess);
        assert_eq!(&bytes_of(&region)[12..28], b"....transom!....");
        if !departs(&owner.context, Departure::NoRefusalEvent) {
            assert_eq!(refusal(&owner), Some(owner.qp.number()));
        }
        assert!(owner.qp.has_failed().unwrap() && peer.qp.has_failed().unwrap());
        drop(window);
        region.deregister().unwrap();
    }

    /// Rules: RA-28
    fn a_window_gives_only_its_rights<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = owner.bindable(&[1; 8]);
        let window = bound::<T>(&owner, &region, 0..8, Rights::READ);
        assert_eq!(failure(peer.qp.write(&[2; 8], window.grant())), Status::RemoteAccess);
        assert_eq!(bytes_of(&region), [1; 8]);
    }

    /// Rules: RA-33
    fn a_window_ends_where_it_ends<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = owner.bindable(&[1; 64]);
        let window = bound::<T>(&owner, &region, 16..32, Rights::WRITE);
        let grant = window.grant();
        assert!(matches!(grant.slice(9..17), Err(Error::OutOfRange { .. })));
        let past = RemoteSlice { addr: grant.addr + 9, rkey: grant.rkey, length: 8 };
        if departs(&owner.context, Departure::WindowBounds) {
            peer.qp.write(&[2; 8], past).unwrap().wait().unwrap();
            return;
        }
        assert_eq!(failure(peer.qp.write(&[2; 8], past)), Status::RemoteAccess);
        assert_eq!(bytes_of(&region), [1; 64]);
    }

    /// Rules: T1-59, AT-05
    fn atomics_work_through_a_window<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = MemoryRegion::register(
            &owner.pd,
            transom::Pages::new(64).unwrap(),
            Access::LOCAL_WRITE | Access::MW_BIND,
        )
        .unwrap();
        region.write_at(8, &40u64.to_ne_bytes()).unwrap();
        let window = Window::<T>::alloc(&owner.pd).unwrap();
        let memory = region.slice(8..16).unwrap();
        let binding = window.bind(&owner.qp, &memory, Rights::ATOMIC).unwrap();
        let window = binding.wait().unwrap();
        let grant = window.grant();
        let word = || {
            let mut word = [0; 8];
            region.read_at(8, &mut word).unwrap();
            u64::from_ne_bytes(word)
        };
        let local = peer.local(8);
        let before = || u64::from_ne_bytes(bytes_of(&local).try_into().unwrap());

        peer.qp.fetch_add(&local.all(), grant, 2).unwrap().wait().unwrap();
        assert_eq!((before(), word()), (40, 42));
        peer.qp.compare_swap(&local.all(), grant, 41, 7).unwrap().wait().unwrap();
        assert_eq!((before(), word()), (42, 42));
        peer.qp.compare_swap(&local.all(), grant, 42, 7).unwrap().wait().unwrap();
        assert_eq!((before(), word()), (42, 7));
    }

    /// Rules: T1-56
    fn a_grant_may_be_sent_before_the_bind_has_completed<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = owner.bindable(&[0; 64]);
        let inbox = peer.local(transom::Grant::BYTES);
        let received = peer.qp.receive(&[inbox.all()]).unwrap();

        let window = Window::<T>::alloc(&owner.pd).unwrap();
        let binding = window.bind(&owner.qp, &region.all(), Rights::WRITE).unwrap();
        let sent = owner.qp.send(&binding.grant().to_bytes()).unwrap();
        received.wait().unwrap();
        let grant = transom::Grant::from_bytes(&bytes_of(&inbox).try_into().unwrap()).unwrap();
        peer.qp.write(b"at once", grant).unwrap().wait().unwrap();

        assert_eq!(binding.wait().unwrap().grant(), grant);
        sent.wait().unwrap();
        assert_eq!(&bytes_of(&region)[..7], b"at once");
    }

    /// Rules: DR-06, DR-07
    fn a_bound_window_holds_its_region_until_it_is_free<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = owner.bindable(&[b'x'; 16]);
        let window = bound::<T>(&owner, &region, 0..16, Rights::READ);

        let refused = region.deregister().unwrap_err();
        assert_eq!(refused.error, Error::InUse { users: 1 });
        let region = refused.returned;
        let local = peer.local(16);
        peer.qp.read(&[local.all()], window.grant()).unwrap().wait().unwrap();
        assert_eq!(bytes_of(&local), [b'x'; 16]);

        let _window = window.invalidate(&owner.qp).unwrap().wait().unwrap();
        assert_eq!(region.deregister().unwrap(), vec![b'x'; 16]);
    }

    /// Rules: MWA-13, DR-08
    fn dropping_a_bound_window_revokes_it<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = owner.bindable(&[0; 16]);
        let window = bound::<T>(&owner, &region, 0..16, Rights::WRITE);
        let grant = window.grant();
        drop(window);
        assert_eq!(failure(peer.qp.write(b"late", grant)), Status::RemoteAccess);
        assert_eq!(region.deregister().unwrap(), vec![0; 16]);
    }

    /// Rules: MWA-13, MWA-14, DR-08
    fn a_grant_is_ended_though_the_queue_pair_that_bound_it_has_failed<T>() {
        let Pair { owner, peer } = Pair::new();
        let (_other, other_peer) = Pair::within(&owner.pd);
        let region = owner.bindable(&[b'x'; 16]);
        let window = bound::<T>(&owner, &region, 0..16, Rights::READ);
        let grant = window.grant();
        let past = RemoteSlice { addr: grant.addr + 16, ..grant.into() };
        if departs(&owner.context, Departure::WindowBounds) {
            owner.qp.fail().unwrap();
        } else {
            assert_eq!(failure(peer.qp.read(&[peer.local(16).all()], past)), Status::RemoteAccess);
        }

        let refused = window.invalidate(&owner.qp).unwrap().wait().unwrap_err();
        assert_eq!(status(refused.error), Status::Flushed);
        let window = refused.returned.unwrap();
        assert_eq!(window.grant(), grant);
        window.revoke().unwrap();
        // Another queue pair of the domain still works, and a type 1 window would be open through it.
        let local = other_peer.local(16);
        assert_eq!(failure(other_peer.qp.read(&[local.all()], grant)), Status::RemoteAccess);
        region.deregister().unwrap();
    }

    /// Rules: T1-20, T2-16
    fn a_failed_bind_gives_the_window_back<T>() {
        let Pair { owner, peer: _peer } = Pair::new();
        let unbindable = owner.local(16);
        let window = Window::<T>::alloc(&owner.pd).unwrap();
        let binding = window.bind(&owner.qp, &unbindable.all(), Rights::READ).unwrap();
        let refused = binding.wait().unwrap_err();
        assert_eq!(status(refused.error), Status::WindowBind);
        assert!(owner.qp.has_failed().unwrap());

        // You can still bind it, through a queue pair that is not in error.
        let (again, peer) = Pair::within(&owner.pd);
        let region = owner.bindable(b"bound at last...");
        let window = refused.returned.unwrap();
        let binding = window.bind(&again.qp, &region.all(), Rights::READ).unwrap();
        let window = binding.wait().unwrap();
        let local = peer.local(16);
        peer.qp.read(&[local.all()], window.grant()).unwrap().wait().unwrap();
        assert_eq!(bytes_of(&local), b"bound at last...");
    }

    /// A bind whose ticket is dropped or forgotten keeps its region, and frees or leaks the window.
    fn a_bind_nobody_waits_for_harms_nobody<T>() {
        let Pair { owner, peer: _peer } = Pair::new();
        let region = owner.bindable(&[0; 16]);
        let window = Window::<T>::alloc(&owner.pd).unwrap();
        drop(window.bind(&owner.qp, &region.all(), Rights::WRITE).unwrap());
        // When a later request has completed, so has the bind, and the window is gone.
        let window = bound::<T>(&owner, &region, 0..16, Rights::WRITE);
        drop(window);
        let region = region.deregister().map(|buffer| {
            MemoryRegion::register(&owner.pd, buffer, Access::LOCAL_WRITE | Access::MW_BIND)
        });
        let region = region.unwrap().unwrap();

        let window = Window::<T>::alloc(&owner.pd).unwrap();
        let binding = window.bind(&owner.qp, &region.all(), Rights::WRITE).unwrap();
        std::mem::forget(binding);
        bound::<T>(&owner, &region, 0..16, Rights::WRITE).grant();
        assert!(matches!(region.deregister().unwrap_err().error, Error::InUse { .. }));
    }

    /// Rules: ORD-14
    fn when_a_revocation_has_completed_nothing_is_written_any_more<T>() {
        for _ in 0..20 {
            let Pair { owner, peer } = Pair::new();
            let size = 1 << 18;
            let region = owner.bindable(&vec![0; size]);
            let window = bound::<T>(&owner, &region, 0..size, Rights::WRITE);
            let grant = window.grant();
            let from = peer.local(size);
            from.write_at(0, &vec![0xff; size]).unwrap();
            thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let from = [from.all()];
                    while peer.qp.write(&from, grant).unwrap().wait().is_ok() {}
                });
                while bytes_of(&region)[0] == 0 {
                    assert!(!writing.is_finished(), "nothing is written");
                }
                match window.invalidate(&owner.qp).unwrap().wait() {
                    Err(refused) if departs(&owner.context, Departure::DoneYetFlushed) => {
                        assert_eq!(status(refused.error), Status::Flushed);
                    }
                    invalidated => drop(invalidated.unwrap()),
                }
                region.write_at(0, &vec![0x55; size]).unwrap();
                writing.join().unwrap();
            });
            if !departs(&owner.context, Departure::WritesGoOn) {
                assert!(bytes_of(&region).iter().all(|byte| *byte == 0x55));
            }
        }
    }

    /// Rules: T1-03
    fn a_window_is_not_bound_to_what_it_cannot_be<T>() {
        let Pair { owner, peer } = Pair::new();
        let region = owner.bindable(&[0; 16]);
        let window = Window::<T>::alloc(&owner.pd).unwrap();

        let refused = window.bind(&owner.qp, &region.slice(3..3).unwrap(), Rights::READ);
        let refused = refused.unwrap_err();
        assert_eq!(refused.error, Error::EmptyWindow);

        let refused = refused.returned.bind(&peer.qp, &region.all(), Rights::READ).unwrap_err();
        assert_eq!(refused.error, Error::OtherContext { what: "window" });

        let foreign = peer.bindable(&[0; 16]);
        let refused = refused.returned.bind(&owner.qp, &foreign.all(), Rights::READ).unwrap_err();
        assert_eq!(refused.error, Error::OtherContext { what: "memory region" });

        let pd = ProtectionDomain::new(&owner.context).unwrap();
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let foreign = MemoryRegion::register(&pd, vec![0; 16], access).unwrap();
        let refused = refused.returned.bind(&owner.qp, &foreign.all(), Rights::READ).unwrap_err();
        let eperm = rustix::io::Errno::PERM.raw_os_error();
        assert_eq!(refused.error.errno(), Some(eperm));

        // All this did no harm.
        let binding = refused.returned.bind(&owner.qp, &region.all(), Rights::READ).unwrap();
        binding.wait().unwrap().grant();
    }
}

/// Rules: INV-30, INV-33
#[test]
fn a_peer_revokes_a_window_by_a_send_and_it_can_be_bound_again() {
    let Pair { owner, peer } = Pair::new();
    let region = owner.bindable(&[0; 64]);
    let window = bound::<Type2>(&owner, &region, 0..64, Rights::WRITE);
    let first = window.grant();

    let received = owner.qp.receive(&[]).unwrap();
    peer.qp.send_invalidate(b"", first.rkey).unwrap().wait().unwrap();
    let completion = received.wait().unwrap();
    let window = if departs(&owner.context, Departure::InvalidatedKeyUnnamed) {
        assert_eq!(completion.invalidated_rkey(), None);
        drop(window);
        Window::alloc(&owner.pd).unwrap()
    } else {
        assert_eq!(completion.invalidated_rkey(), Some(first.rkey));
        window.revoked_by(&completion).unwrap()
    };

    let binding = window.bind(&owner.qp, &region.slice(8..16).unwrap(), Rights::WRITE).unwrap();
    let window = binding.wait().unwrap();
    assert_ne!(window.grant().rkey, first.rkey);
    peer.qp.write(b"again", window.grant().slice(0..5).unwrap()).unwrap().wait().unwrap();
    assert_eq!(&bytes_of(&region)[8..13], b"again");
    assert_eq!(failure(peer.qp.write(b"stale", first)), Status::RemoteAccess);
}

#[test]
fn a_window_stays_bound_if_the_completion_does_not_name_it() {
    let Pair { owner, peer } = Pair::new();
    let region = owner.bindable(&[0; 64]);
    let window = bound::<Type2>(&owner, &region, 0..64, Rights::WRITE);
    let rkey = window.grant().rkey;
    let received = owner.qp.receive(&[]).unwrap();
    peer.qp.send(b"").unwrap().wait().unwrap();
    let refused = window.revoked_by(&received.wait().unwrap()).unwrap_err();
    assert_eq!(refused.error, Error::NotRevoked { rkey, invalidated: None });
    peer.qp.write(b"still", refused.returned.grant()).unwrap().wait().unwrap();
}

/// A completion that has freed a window does not free it again when it is bound under the same key, which happens after
/// 256 binds.
///
/// Rules: KEY-02, INV-30
#[test]
fn a_completion_frees_a_window_once() {
    let Pair { owner, peer } = Pair::new();
    if departs(&owner.context, Departure::InvalidatedKeyUnnamed) {
        return;
    }
    let region = owner.bindable(&[0; 64]);
    let window = bound::<Type2>(&owner, &region, 0..64, Rights::WRITE);
    let first = window.grant();
    let received = owner.qp.receive(&[]).unwrap();
    peer.qp.send_invalidate(b"", first.rkey).unwrap().wait().unwrap();
    let completion = received.wait().unwrap();
    let mut free = window.revoked_by(&completion).unwrap();

    let window = loop {
        let window = free.bind(&owner.qp, &region.all(), Rights::WRITE).unwrap().wait().unwrap();
        if window.grant().rkey == first.rkey {
            break window;
        }
        free = window.invalidate(&owner.qp).unwrap().wait().unwrap();
    };
    let refused = window.revoked_by(&completion).unwrap_err();
    let rkey = first.rkey;
    assert_eq!(refused.error, Error::NotRevoked { rkey, invalidated: Some(rkey) });
    peer.qp.write(b"in force", refused.returned.grant()).unwrap().wait().unwrap();
    assert_eq!(&bytes_of(&region)[..8], b"in force");
}

/// Rules: INV-30
#[test]
fn a_completion_of_something_else_frees_no_window() {
    let Pair { owner, peer } = Pair::new();
    let (other, other_peer) = Pair::within(&owner.pd);
    let region = owner.bindable(&[0; 64]);
    let mut window = bound::<Type2>(&owner, &region, 0..8, Rights::WRITE);
    let neighbour = bound::<Type2>(&other, &region, 8..16, Rights::WRITE);
    let named = neighbour.grant().rkey;

    // A local invalidation, a bind, a send, and a receive of another queue pair that names another key.
    let local = bound::<Type2>(&owner, &region, 16..24, Rights::WRITE);
    drop(local.invalidate(&owner.qp).unwrap().wait().unwrap());
    let received = other.qp.receive(&[]).unwrap();
    let sent = other_peer.qp.send_invalidate(b"", named).unwrap().wait().unwrap();
    for completion in [sent, received.wait().unwrap()] {
        window = window.revoked_by(&completion).unwrap_err().returned;
    }
    peer.qp.write(b"in force", window.grant()).unwrap().wait().unwrap();
    assert_eq!(&bytes_of(&region)[..8], b"in force");
    drop(neighbour);
}

/// Rules: T2-29, T2-30
#[test]
fn a_zero_based_window_counts_from_its_own_start() {
    let Pair { owner, peer } = Pair::new();
    let region = owner.bindable(&[b'.'; 64]);
    let window = Window::<Type2>::alloc(&owner.pd).unwrap();
    let memory = region.slice(10..20).unwrap();
    let binding = window.bind_zero_based(&owner.qp, &memory, Rights::WRITE).unwrap();
    let grant = binding.wait().unwrap();
    assert_eq!(grant.grant().addr, 0);
    peer.qp.write(b"zero", grant.grant().slice(2..6).unwrap()).unwrap().wait().unwrap();
    assert_eq!(&bytes_of(&region)[10..18], b"..zero..");
    let past = RemoteSlice { addr: 10, rkey: grant.grant().rkey, length: 1 };
    if departs(&owner.context, Departure::WindowBounds) {
        peer.qp.write(b"!", past).unwrap().wait().unwrap();
        return;
    }
    assert_eq!(failure(peer.qp.write(b"!", past)), Status::RemoteAccess);
}

/// Rules: T1-43
#[test]
fn a_type_1_window_serves_every_queue_pair_of_its_domain() {
    let Pair { owner, peer: _peer } = Pair::new();
    let (_other, peer) = Pair::within(&owner.pd);
    let region = owner.bindable(&[b'1'; 8]);
    let window = bound::<Type1>(&owner, &region, 0..8, Rights::READ);
    let local = peer.local(8);
    peer.qp.read(&[local.all()], window.grant()).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&local), [b'1'; 8]);
}

/// Rules: T2-35
#[test]
fn a_type_2_window_serves_only_the_queue_pair_that_bound_it() {
    let Pair { owner, peer: _peer } = Pair::new();
    let (other, peer) = Pair::within(&owner.pd);
    let region = owner.bindable(&[b'2'; 8]);
    let window = bound::<Type2>(&owner, &region, 0..8, Rights::READ);
    let local = peer.local(8);
    assert_eq!(failure(peer.qp.read(&[local.all()], window.grant())), Status::RemoteAccess);

    // Another queue pair does not invalidate it either, and the device is not even asked.
    let refused = window.invalidate(&other.qp).unwrap_err();
    let (bound_by, given) = (owner.qp.number(), other.qp.number());
    assert_eq!(refused.error, Error::OtherQueuePair { bound_by, given });
    refused.returned.invalidate(&owner.qp).unwrap().wait().unwrap();
}

#[test]
fn a_queue_pair_serves_until_the_last_type_2_window_that_it_has_bound_ends() {
    let Pair { owner, peer } = Pair::new();
    let region = owner.bindable(b"still it serves");
    let window = bound::<Type2>(&owner, &region, 0..15, Rights::READ);
    drop(owner.qp);
    let local = peer.local(15);
    peer.qp.read(&[local.all()], window.grant()).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&local), b"still it serves");

    drop(window);
    // As long as it is there, the message waits for a receive.
    let sent = peer.qp.send(b"").unwrap().wait_timeout(TIMEOUT);
    assert!(sent.is_err(), "it takes messages: {sent:?}");
}

/// A device with windows of type 2A destroys no queue pair that has a window.
///
/// Rules: T2-06
#[test]
fn a_queue_pair_that_is_dropped_before_its_window_does_not_stay() {
    need!(has_faults(), "windows of type 2A");
    let test = path_of!("a_queue_pair_that_is_dropped_before_its_window_does_not_stay");
    if let Some(end) = alone(test, &[("TRANSOM_WINDOWS", "2A")]) {
        return assert_eq!(end, 0);
    }
    for waits in [true, false] {
        let Pair { owner, peer } = Pair::new();
        let attributes = owner.context.attributes().unwrap();
        assert_eq!(attributes.windows_type_2, Some(Type2Check::QueuePair));
        let region = owner.bindable(&[0; 8]);
        let window = Window::<Type2>::alloc(&owner.pd).unwrap();
        let binding = window.bind(&owner.qp, &region.all(), Rights::WRITE).unwrap();
        let Party { qp, cq, pd, context } = owner;
        let descriptor = format!("/proc/self/fd/{}", context.as_raw_fd());
        drop((cq, pd, context));
        if waits {
            let window = binding.wait().unwrap();
            drop(qp);
            drop(window);
        } else {
            // Nobody takes its completion.
            drop(binding);
            drop(qp);
        }
        region.deregister().unwrap();
        // The queue pair would keep it open.
        assert!(std::fs::read_link(descriptor).is_err(), "the device is still open");
        let sent = peer.qp.send(b"").unwrap().wait_timeout(TIMEOUT);
        assert!(sent.is_err(), "it takes messages: {sent:?}");
    }
}

#[test]
fn a_change_of_a_window_is_waited_for_in_every_way_a_request_is() {
    let Pair { owner, peer: _peer } = Pair::new();
    let region = owner.bindable(&[0; 8]);
    let window = Window::<Type2>::alloc(&owner.pd).unwrap();
    let mut binding = window.bind(&owner.qp, &region.all(), Rights::READ).unwrap();
    let window = binding.wait_timeout(TIMEOUT).expect("it is bound").unwrap();
    assert_eq!(window.grant().length, 8);
    // It has nothing left to give.
    catch_unwind(AssertUnwindSafe(|| binding.try_wait().map(drop))).unwrap_err();
    catch_unwind(AssertUnwindSafe(|| binding.grant())).unwrap_err();

    let mut invalidating = window.invalidate(&owner.qp).unwrap();
    let window = until(|| invalidating.try_wait()).unwrap();

    // What fails comes back.
    let unbindable = owner.local(8);
    let mut binding = window.bind(&owner.qp, &unbindable.all(), Rights::READ).unwrap();
    let refused = until(|| binding.wait_timeout(Duration::from_millis(1))).unwrap_err();
    assert_eq!(status(refused.error), Status::WindowBind);
    drop(refused.returned.expect("it is free"));
}

/// Rules: T1-50, T1-51, DR-09, KEY-05, KEY-12
#[test]
fn a_type_1_window_moves_to_another_region_in_one_step() {
    let Pair { owner, peer: _peer } = Pair::new();
    let (other, peer) = Pair::within(&owner.pd);
    let (a, b) = (owner.bindable(b"aaaa"), owner.bindable(b"bbbb"));
    let window = bound::<Type1>(&owner, &a, 0..4, Rights::READ);
    let old = window.grant();
    let window = window.rebind(&other.qp, &b.all(), Rights::READ).unwrap().wait().unwrap();
    assert_ne!(window.grant().rkey, old.rkey);

    a.deregister().unwrap();
    let b = b.deregister().unwrap_err().returned;
    let local = peer.local(4);
    peer.qp.read(&[local.all()], window.grant()).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&local), b"bbbb");
    assert_eq!(failure(peer.qp.read(&[local.all()], old)), Status::RemoteAccess);
    drop((window, b));
}

/// Rules: T1-35, KEY-08
#[test]
fn a_failed_rebind_leaves_the_old_binding() {
    let Pair { owner, peer: _peer } = Pair::new();
    let (other, peer) = Pair::within(&owner.pd);
    let (region, unbindable) = (owner.bindable(b"old!"), owner.local(4));
    let window = bound::<Type1>(&owner, &region, 0..4, Rights::READ);
    let grant = window.grant();

    let rebinding = window.rebind(&owner.qp, &unbindable.all(), Rights::READ).unwrap();
    let refused = rebinding.wait().unwrap_err();
    assert_eq!(status(refused.error), Status::WindowBind);
    let window = refused.returned.unwrap();
    assert_eq!(window.grant(), grant);

    let local = peer.local(4);
    peer.qp.read(&[local.all()], grant).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&local), b"old!");
    let region = region.deregister().unwrap_err().returned;
    // The verbs know the right key again, so the window can be unbound.
    window.invalidate(&other.qp).unwrap().wait().unwrap();
    region.deregister().unwrap();
    assert_eq!(failure(peer.qp.read(&[local.all()], grant)), Status::RemoteAccess);
}

/// The queue pair of a refused access, from the owner's asynchronous event.
fn refusal(owner: &Party) -> Option<u32> {
    loop {
        let event = owner.context.async_event(TIMEOUT).unwrap().expect("an event");
        match event.kind {
            AsyncEventKind::AccessRefused => return event.queue_pair,
            AsyncEventKind::CommunicationEstablished => {}
            other => panic!("not a refusal: {other:?}"),
        }
    }
}
