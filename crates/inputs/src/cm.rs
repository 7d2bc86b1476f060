//! A datagram for queue pair 1: no message of connection management, or one that is written as it was
//! read.

use transom_wire::cm::{IpHeader, Mad, Message};

/// Takes a datagram for queue pair 1.
pub fn cm(bytes: &[u8]) {
    let Ok(mad) = Mad::parse(bytes) else { return };
    let written = mad.write();
    mad.receiver();
    let header = match &mad.message {
        Message::Req(req) => req.private_data.first_chunk(),
        Message::SidrReq(request) => request.private_data.first_chunk(),
        _ => None,
    };
    if let Some(header) = header.and_then(IpHeader::read) {
        assert_eq!(IpHeader::read(&header.write()), Some(header));
    }
    // What differs is reserved, and was ignored: the second time nothing does.
    assert_eq!(Mad::parse(&written).as_ref(), Ok(&mad));
    assert_eq!(Mad::parse(&written).unwrap().write(), written);
}
