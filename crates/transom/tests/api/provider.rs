//! The source of the verbs, and a device's description of itself.

use crate::common::context;
use transom::{Endpoint, Error, Provider};

#[test]
fn a_missing_library_is_named() {
    // SAFETY: there is no such file.
    let error = unsafe { Provider::open("/nowhere/libibverbs.so.1") }.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("/nowhere/libibverbs.so.1"), "{text}");
    assert!(text.contains("No such file"), "{text}");
}

#[test]
fn a_library_without_the_verbs_is_told_from_one_with_them() {
    // SAFETY: the C library may be loaded. None of its functions is called.
    let error = unsafe { Provider::open("libc.so.6") }.unwrap_err();
    assert!(matches!(error, Error::Library { .. }));
    assert!(error.to_string().contains("ibv_get_device_list"), "{error}");
}

/// The system's libibverbs opens if it is installed, with or without devices.
#[test]
fn the_systems_library_opens_where_there_is_one() {
    match Provider::system() {
        Ok(provider) => match transom::devices(&provider) {
            Ok(devices) => println!("{} devices", devices.len()),
            // A kernel without RDMA.
            Err(error) => assert!(error.errno().is_some(), "{error}"),
        },
        Err(error) => assert!(matches!(error, Error::Library { .. }), "{error}"),
    }
}

#[test]
fn a_device_tells_what_it_can_do() {
    let context = context();
    let attributes = context.attributes().unwrap();
    assert!(attributes.max_windows > 0 && attributes.max_regions > 0);
    assert!(attributes.windows_type_1);
    assert!(attributes.windows_type_2.is_some());
    assert!(attributes.max_address_handles > 0 && attributes.max_group_members > 0);
    assert!(attributes.max_multicast_groups > 0);
    assert!(attributes.ports >= 1);
    let port = context.port(1).unwrap();
    assert!(port.active);
    assert!(port.active_mtu >= 256 && port.active_mtu <= port.max_mtu);
    assert!(port.gids > 0);
    assert!(context.gid(1, 0).unwrap().0 != [0; 16]);
    assert!(context.port(0).is_err());
}

#[test]
fn an_endpoint_travels_as_json() {
    let endpoint =
        Endpoint { qpn: 0x4a1, psn: 7, gid: context().gid(1, 0).unwrap(), lid: 1, mtu: 1024 };
    let json = serde_json::to_string(&endpoint).unwrap();
    assert_eq!(serde_json::from_str::<Endpoint>(&json).unwrap(), endpoint);
}
