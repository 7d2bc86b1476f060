//! Ids of rdma_cm where a program has several devices.

use std::path::PathBuf;

use transom_conformance::c_programs::{RDMACM, compile, in_time, run};
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, interfaces_up};

use super::{Installed, LIMIT, ON_INTERFACES, interface_up, second_interface_up};

/// The third device has the address of the second.
const SHARED: [&str; 3] = [ON_INTERFACES[0], ON_INTERFACES[1], "--device=transom2,netdev=eth1"];

/// In a namespace with two interfaces: what is installed, and this program.
fn with_two_interfaces(name: &str) -> (Installed, PathBuf) {
    interfaces_up();
    second_interface_up();
    let installed = Installed::new(name);
    let folder = format!("-L{}", installed.0.path().display());
    let libraries = [&[folder.as_str()], RDMACM].concat();
    let binary = compile(&installed.0, &format!("{name}.c"), name, &libraries);
    (installed, binary)
}

fn ids_of_two_devices() {
    let (installed, binary) = with_two_interfaces("two_cm_devices");
    let binary = binary.to_str().expect("a plain path");
    for link in ["", "wire"] {
        let mut command = installed.run(&ON_INTERFACES, &[binary, "both_serve"]);
        run(command.env("TRANSOM_LINK", link), 6);
    }
    run(&mut installed.run(&SHARED, &[binary, "an_address_of_two_devices"]), 1);
    let line = format!("ip link delete eth0; {binary} the_first_is_missing");
    assert_eq!(installed.says(&ON_INTERFACES, &line), "ok - the second serves alone\n");
}

fn channels_of_two_devices() {
    let (installed, binary) = with_two_interfaces("two_cm_channels");
    let binary = binary.to_str().expect("a plain path");
    for link in ["", "wire"] {
        let mut command = installed.run(&ON_INTERFACES, &[binary, "two_devices"]);
        run(command.env("TRANSOM_LINK", link), 5);
    }
    interface_up(2);
    let three = [ON_INTERFACES[0], ON_INTERFACES[1], "--device=transom2,netdev=eth2"];
    run(&mut installed.run(&three, &[binary, "groups_move_with_their_id"]), 1);
}

fn devices_go() {
    let (installed, binary) = with_two_interfaces("two_cm_devices_go");
    let binary = binary.to_str().expect("a plain path");
    let all_go = |devices: &[&str], numbers: &[u8], case, shows| {
        let printed = in_time(LIMIT, &|at| {
            let fault = |number| format!("--fault=device-removal,{at},device={number}");
            let faults: Vec<_> = numbers.iter().map(fault).collect();
            let faults = faults.iter().map(String::as_str);
            let options: Vec<_> = devices.iter().copied().chain(faults).collect();
            installed.run(&options, &[binary, case])
        });
        assert_eq!(printed.output.matches("ok - ").count(), shows, "{printed:?}");
    };
    let goes = |devices: &[&str], number, case, shows| all_go(devices, &[number], case, shows);
    goes(&ON_INTERFACES, 0, "the_first_goes", 4);
    goes(&ON_INTERFACES, 1, "the_second_goes", 1);
    goes(&["--devices=2"], 0, "one_with_the_same_addresses_goes", 1);
    goes(&ON_INTERFACES, 0, "the_first_comes_back", 1);
    goes(&ON_INTERFACES, 1, "the_second_comes_back", 1);
    goes(&SHARED, 1, "one_with_a_shared_address_goes", 1);
    let down = [ON_INTERFACES[0], "--device=transom1,netdev=eth1,port=down"];
    goes(&down, 0, "the_only_one_that_serves_goes", 1);
    all_go(&ON_INTERFACES, &[0, 1], "both_go", 1);
}

/// What it shows, the program says itself.
/// Rules: DEVS-13, DEVS-14
#[test]
fn an_id_gets_the_device_of_its_address() {
    let test = path_of!("an_id_gets_the_device_of_its_address");
    alone(test, Way::Namespace, ids_of_two_devices);
}

/// Rules: DEVS-14
#[test]
fn a_channel_serves_all_devices() {
    let test = path_of!("a_channel_serves_all_devices");
    alone(test, Way::Namespace, channels_of_two_devices);
}

/// Rules: CM-46, DEVS-11, DEVS-12, DEVS-14, DEVS-15, DEVS-16
#[test]
fn ids_hear_of_a_device_that_goes_and_go_on_at_others() {
    let test = path_of!("ids_hear_of_a_device_that_goes_and_go_on_at_others");
    alone(test, Way::Namespace, devices_go);
}
