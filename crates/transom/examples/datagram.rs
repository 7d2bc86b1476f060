//! Datagrams: two parties that know each other's endpoint, and a group.
//!
//! ```sh
//! cargo run -p transom --example datagram             # on the software device
//! cargo run -p transom --example datagram -- system   # on a device of the system's libibverbs
//! ```

mod device;

use std::net::{Ipv6Addr, UdpSocket};
use transom::{
    Access, AddressHandle, CompletionQueue, Destination, Gid, MemoryRegion, ProtectionDomain,
    QueuePair, Result,
};

/// The key that all parties here share.
const QKEY: u32 = 0x1234_5678;

/// The length of a buffer: a header of 40 bytes, and a short payload.
const BUFFER: usize = 40 + 24;

fn main() -> Result<()> {
    let context = device::open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let builder = QueuePair::datagram(&pd, &cq).qkey(QKEY);
    let (a, b, c) = (builder.build()?, builder.build()?, builder.build()?);

    let memory = MemoryRegion::register(&pd, vec![0; 2 * BUFFER], Access::LOCAL_WRITE)?;
    let at_a = a.receive(&memory.slice(0..BUFFER)?)?;
    let at_b = b.receive(&memory.slice(BUFFER..2 * BUFFER)?)?;

    // The party that knows the other's endpoint writes first.
    let address = AddressHandle::new(&pd, b.endpoint())?;
    let to_b = Destination { address, queue_pair: b.number(), qkey: QKEY };
    a.send(&to_b, b"ping")?.wait()?;

    // The other answers the sender, without knowing its endpoint.
    let ping = at_b.wait()?;
    let text = String::from_utf8_lossy(&ping.to_vec()).into_owned();
    println!("{:#x} got {text:?} from {:#x}", b.number(), ping.source().queue_pair);
    b.send(&ping.sender(&b, QKEY)?, b"pong")?.wait()?;
    println!("{:#x} got {:?}", a.number(), String::from_utf8_lossy(&at_a.wait()?.to_vec()));

    // A datagram to a group reaches every member except the sender. The second byte of this group's GID keeps it on the
    // host.
    let mut group = Gid([0; 16]);
    (group.0[0], group.0[1], group.0[15]) = (0xff, 0x01, 0x77);
    // A kernel device takes group datagrams from the network only if the host has joined the group.
    let host = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    let _joined = host.and_then(|host| host.join_multicast_v6(&group.0.into(), 0).map(|()| host));
    let _memberships = [b.join(group)?, c.join(group)?];
    let receiving =
        [b.receive(&memory.slice(0..BUFFER)?)?, c.receive(&memory.slice(BUFFER..2 * BUFFER)?)?];
    let address = AddressHandle::new(&pd, group)?;
    let to_all = Destination { address, queue_pair: Destination::GROUP, qkey: QKEY };
    a.send(&to_all, b"hello, everybody")?.wait()?;
    for receiving in receiving {
        let datagram = receiving.wait()?;
        let member = datagram.completion().queue_pair();
        println!("{member:#x} got {:?}", String::from_utf8_lossy(&datagram.to_vec()));
    }
    Ok(())
}
