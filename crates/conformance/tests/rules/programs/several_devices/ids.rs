//! Ids of rdma_cm where a program has several devices.

use transom_conformance::c_programs::{RDMACM, compile, in_time, run};
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, interfaces_up};

use super::{Installed, LIMIT, ON_INTERFACES, second_interface_up};

fn ids_of_two_devices() {
    interfaces_up();
    second_interface_up();
    let installed = Installed::new("cm-devices");
    let folder = format!("-L{}", installed.0.path().display());
    let libraries = [&[folder.as_str()], RDMACM].concat();
    let binary = compile(&installed.0, "two_cm_devices.c", "two_cm_devices", &libraries);
    let binary = binary.to_str().expect("a plain path");
    for link in ["", "wire"] {
        let mut command = installed.run(&ON_INTERFACES, &[binary]);
        run(command.env("TRANSOM_LINK", link), 11);
    }
    let shared = [&ON_INTERFACES[..], &["--device=transom2,netdev=eth1"]].concat();
    run(&mut installed.run(&shared, &[binary, "shared"]), 1);
    let all_go = |devices: &[&str], numbers: &[u8], part, shows| {
        let printed = in_time(LIMIT, &|at| {
            let fault = |number| format!("--fault=device-removal,{at},device={number}");
            let faults: Vec<_> = numbers.iter().map(fault).collect();
            let faults = faults.iter().map(String::as_str);
            let options: Vec<_> = devices.iter().copied().chain(faults).collect();
            installed.run(&options, &[binary, part])
        });
        assert_eq!(printed.output.matches("ok - ").count(), shows, "{printed:?}");
    };
    let goes = |devices: &[&str], number, part, shows| all_go(devices, &[number], part, shows);
    goes(&ON_INTERFACES, 0, "goes", 4);
    goes(&ON_INTERFACES, 1, "second-goes", 1);
    goes(&["--devices=2"], 0, "same-goes", 1);
    goes(&ON_INTERFACES, 0, "goes-and-comes", 1);
    goes(&ON_INTERFACES, 1, "second-goes-and-comes", 1);
    goes(&shared, 1, "shared-goes", 1);
    let down = [ON_INTERFACES[0], "--device=transom1,netdev=eth1,port=down"];
    goes(&down, 0, "alone-goes", 1);
    all_go(&ON_INTERFACES, &[0, 1], "all-go", 1);
    let line = format!("ip link delete eth0; {binary} missing");
    assert_eq!(installed.says(&ON_INTERFACES, &line), "ok - the second serves alone\n");
}

/// What it shows, the program says itself.
/// Rules: CM-46, DEVS-11, DEVS-14, DEVS-15, DEVS-16
#[test]
fn an_id_gets_the_device_of_its_address() {
    let test = path_of!("an_id_gets_the_device_of_its_address");
    alone(test, Way::Namespace, ids_of_two_devices);
}
