//! Connections of a process with itself.

use transom_abi::*;
use transom_conformance::connections::*;

/// Both ends of a connection that stands: the active one, the passive one.
fn connected(file: &File, address: &str, qpns: [u32; 2]) -> [Id; 2] {
    let active = file.id();
    file.resolve(active, address);
    file.connect(active, qpns[0], b"asks").expect("asked");
    let passive = file.request();
    file.accept(passive, 2, qpns[1], b"accepts").expect("accepted");
    file.expect(event::CONNECT_RESPONSE, active);
    file.establish(active).expect("established");
    file.expect(event::ESTABLISHED, passive);
    [active, passive]
}

/// Rules: CM-03, CM-32, CM-33, CM-35
#[test]
fn a_process_connects_to_itself() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let active = file.id();
    file.resolve(active, &address.to_string());
    assert_eq!(file.addresses(active)[1], Some(address));
    let [here, there] = qpns();
    file.connect(active, here, b"asks").expect("asked");
    let request = file.expect_request();
    assert_eq!(private_data(&request), [&b"asks"[..], &[0; 52]].concat());
    // SAFETY: of a connection.
    let offered = unsafe { request.param.conn };
    assert_eq!(offered.qp_num, here);
    assert_eq!((offered.responder_resources, offered.initiator_depth), (2, 4));
    let passive = Id(request.id);
    assert_eq!(file.addresses(passive), [Some(address), file.addresses(active)[0]]);
    file.accept(passive, 2, there, b"accepts").expect("accepted");
    let response = file.expect(event::CONNECT_RESPONSE, active);
    assert_eq!(private_data(&response)[..8], *b"accepts\0");
    assert_eq!(private_data(&response).len(), 196);
    file.establish(active).expect("established");
    assert_eq!(file.expect(event::ESTABLISHED, passive).uid, 2);
    file.disconnect(active).expect("asked");
    file.expect(event::DISCONNECTED, passive);
    file.disconnect(passive).expect("confirmed");
    file.expect(event::DISCONNECTED, active);
    let exits = [file.event(), file.event()].map(|event| event.event);
    assert_eq!(exits, [event::TIMEWAIT_EXIT; 2]);
    assert_eq!(file.destroy(active), Ok(5));
    assert_eq!(file.destroy(passive), Ok(3));
    assert_eq!(file.destroy(listener), Ok(1));
    assert_eq!(file.destroy(listener), Err(libc::ENOENT));
}

/// Rules: CM-21, CM-33
#[test]
fn nobody_listens() {
    let file = File::open();
    let active = file.id();
    file.resolve(active, "127.0.0.1:7");
    file.connect(active, qpns()[0], &[]).expect("asked");
    assert_eq!(file.expect(event::REJECTED, active).status, 8);
}

/// Rules: CM-33
#[test]
fn a_program_refuses_with_data() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let active = file.id();
    file.resolve(active, &address.to_string());
    file.connect(active, qpns()[0], &[]).expect("asked");
    file.reject(file.request(), b"no").expect("refused");
    let rejected = file.expect(event::REJECTED, active);
    assert_eq!(rejected.status, 28);
    assert_eq!(private_data(&rejected), [&b"no"[..], &[0; 146]].concat());
}

/// Rules: CM-34
#[test]
fn how_queue_pairs_get_ready_is_told() {
    let file = File::open();
    let listener = file.listener("127.0.0.1:0");
    let [Some(address), None] = file.addresses(listener) else { panic!("it is bound") };
    let qpns = qpns();
    let [active, passive] = connected(&file, &address.to_string(), qpns);
    let [there, here] = [active, passive].map(|id| file.qp_attributes(id, IBV_QPS_RTR).unwrap());
    assert_eq!([here.dest_qp_num, there.dest_qp_num], qpns);
    let sends = [active, passive].map(|id| file.qp_attributes(id, IBV_QPS_RTS).unwrap());
    assert_eq!((there.rq_psn, here.rq_psn), (sends[1].sq_psn, sends[0].sq_psn));
    assert_eq!(there.ah_attr.grh.dgid, transom_ibverbs::LOOPBACK_GID);
    assert_eq!(file.qp_attributes(active, IBV_QPS_ERR).map(drop), Err(libc::EINVAL));
}
