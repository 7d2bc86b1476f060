//! The source of the verbs, and a device's description of itself.

use crate::common::{alone, context, has_faults, need, path_of, provider};
use transom::{
    Access, CompletionQueue, Endpoint, Error, GidType, MemoryRegion, ProtectionDomain, Provider,
    QueuePair,
};

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
    let types: Vec<_> = (0..=u8::MAX).filter_map(|at| context.gid_type(1, at).ok()).collect();
    assert!(types.contains(&GidType::RoceV2) || !port.ethernet, "{types:?}");
    assert!(context.gid_type(1, u8::MAX).is_err() && context.gid_type(0, 0).is_err());
}

#[test]
fn an_endpoint_travels_as_json() {
    let endpoint =
        Endpoint { qpn: 0x4a1, psn: 7, gid: context().gid(1, 0).unwrap(), lid: 1, mtu: 1024 };
    let json = serde_json::to_string(&endpoint).unwrap();
    assert_eq!(serde_json::from_str::<Endpoint>(&json).unwrap(), endpoint);
}

/// Each is opened by its name, and a queue pair of one reaches memory of the other.
/// Rules: DEVS-01, DEVS-04, DEVS-05
#[test]
fn a_second_device_is_opened_by_its_name() {
    need!(has_faults(), "no second device can be told");
    let told = [("TRANSOM_DEVICES", "mlx5_0;mlx5_1")];
    if let Some(end) = alone(path_of!("a_second_device_is_opened_by_its_name"), &told) {
        return assert_eq!(end, 0);
    }
    let all = transom::devices(&provider()).unwrap();
    let open = |name: &str| {
        let device = all.iter().find(|device| device.name() == name).expect("it is listed");
        let context = device.open().unwrap();
        (ProtectionDomain::new(&context).unwrap(), CompletionQueue::new(&context, 16).unwrap())
    };
    let [(pd, cq), (other_pd, other_cq)] = ["mlx5_0", "mlx5_1"].map(open);
    assert_eq!(other_pd.context().name(), "mlx5_1");
    assert!(QueuePair::builder(&pd, &other_cq).build().is_err(), "objects of both");

    let own = QueuePair::builder(&pd, &cq).build().unwrap();
    let other = QueuePair::builder(&other_pd, &other_cq).build().unwrap();
    let (at, other_at) = (own.endpoint(), other.endpoint());
    let (own, _other) = (own.connect(&other_at).unwrap(), other.connect(&at).unwrap());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = MemoryRegion::register(&other_pd, vec![0; 7], access).unwrap();
    own.write(b"railway", region.grant()).unwrap().wait().unwrap();
    let mut bytes = [0; 7];
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"railway");
}
