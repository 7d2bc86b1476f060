//! No command that rdma-core's providers send to the kernel is refused without a sentence.

use std::ptr::null_mut;

use transom_conformance::harness::*;
use transom_conformance::processes::{Way, alone};
use transom_conformance::queues::number;
use transom_ibverbs::private::*;
use transom_ibverbs::private_functions;

use super::verbs::{Refused, each_is_told_of};

/// A call of each function that answers an errno: their arguments make no difference.
macro_rules! calls {
    ($($later:tt { $($(#[$doc:meta])* $kind:ident $name:ident)+ })+) => {
        fn calls() -> Vec<Refused> {
            let mut calls = Vec::<Refused>::new();
            $($($kind!(calls, $name);)+)+
            calls
        }
    };
}

macro_rules! errno {
    ($calls:ident, $name:ident) => {
        $calls.push((stringify!($name), Box::new(|| _ = $name())));
    };
}

macro_rules! minus_one {
    ($calls:ident, $name:ident) => {
        errno!($calls, $name);
    };
}

macro_rules! null {
    ($calls:ident, $name:ident) => {
        errno!($calls, $name);
    };
}

macro_rules! post {
    ($calls:ident, $name:ident) => {
        // SAFETY: nothing is written by null.
        let call = || _ = unsafe { $name(null_mut(), null_mut(), null_mut()) };
        $calls.push((stringify!($name), Box::new(call)));
    };
}

/// Of those that are written out, one opens a device, and the others do not fail.
macro_rules! own {
    ($calls:ident, verbs_open_device) => {
        let open = || _ = verbs_open_device(null_mut(), std::ptr::dangling_mut());
        $calls.push(("verbs_open_device", Box::new(open)));
    };
    ($calls:ident, $name:ident) => {};
}

macro_rules! nothing {
    ($calls:ident, $name:ident) => {};
}

private_functions!(calls);

/// Rules: EX-04
#[test]
fn every_command_of_a_provider_is_told_of() {
    fn every_command() {
        let end = End::new(Default::default());
        let slot = transom_device::qp::QpNumber::from_bits(number(end.qp(transom_abi::IBV_QPT_RC)));
        let calls = calls();
        assert!(calls.len() > 70, "the list is whole");
        each_is_told_of(slot.slot(), &calls);
    }
    let path = transom_conformance::path_of!("every_command_of_a_provider_is_told_of");
    alone(path, Way::Direct, every_command);
}
