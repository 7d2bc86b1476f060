//! A server and a client connect by address. Each opens a window to the other, and writes through the other's
//! window.
//!
//! ```sh
//! cargo run -p transom --example connect -- server 127.0.0.1:7471
//! cargo run -p transom --example connect -- client 127.0.0.1:7471
//! cargo run -p transom --example connect             # both, in one process
//! ```
//!
//! With `system` as the first argument, it uses the adapters of the system's libibverbs and librdmacm.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use transom::{
    Access, CompletionQueue, Connection, Connector, Context, Grant, Initialized, Listener,
    MemoryRegion, Posted, ProtectionDomain, Provider, QueuePair, Result, Rights, Type2, Window,
};

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let system = words.first().is_some_and(|word| word == "system");
    let provider = if system { Provider::system()? } else { Provider::software() };
    words.drain(..usize::from(system));
    let address = words.get(1).map(|address| address.parse().expect("an address with a port"));
    match (words.first().map(String::as_str), address) {
        (Some("server"), Some(address)) => {
            let listener = Listener::bind(&provider, address)?;
            println!("listening on {}", listener.local_address());
            loop {
                serve(&provider, &listener)?;
            }
        }
        (Some("client"), Some(address)) => visit(&provider, address),
        _ => {
            let ip =
                if system { address_of(&open(&provider, None)?)? } else { [127, 0, 0, 1].into() };
            let listener = Listener::bind(&provider, (ip, 0).into())?;
            let address = listener.local_address();
            thread::scope(|scope| {
                let serving = scope.spawn(|| serve(&provider, &listener));
                visit(&provider, address)?;
                serving.join().expect("serving does not panic")
            })
        }
    }
}

/// Serves one client.
fn serve(provider: &Provider, listener: &Listener) -> Result<()> {
    let request = listener.accept().wait()?;
    let hello = String::from_utf8_lossy(request.private_data()).into_owned();
    println!("server: {} says {hello:?}", request.peer_address());
    // The queue pair must belong to the device through which the request came.
    let (end, queue_pair) = End::new(&open(provider, request.device_name())?)?;
    let mut connection = request.accept(queue_pair, b"come in")?.wait()?;
    println!("server: the client wrote {:?}", end.exchange(&connection, b"from the server")?);
    connection.disconnection().wait()?;
    println!("server: the client has gone");
    Ok(())
}

/// Visits a server.
fn visit(provider: &Provider, server: SocketAddr) -> Result<()> {
    let (end, queue_pair) = End::new(&open(provider, None)?)?;
    let connector = Connector::new(server).private_data(b"anybody there?");
    let connection = connector.connect(queue_pair)?.wait()?;
    let hello = String::from_utf8_lossy(connection.private_data());
    println!("client: {} says {hello:?}", connection.peer_address());
    println!("client: the server wrote {:?}", end.exchange(&connection, b"from the client")?);
    Ok(())
}

/// The objects that an end makes before its queue pair is connected.
struct End {
    pd: ProtectionDomain,
    inbox: MemoryRegion<Vec<u8>>,
    /// Receives posted before the peer can send: for its grant, and then for its farewell.
    expected: [Posted; 2],
}

impl End {
    fn new(context: &Context) -> Result<(Self, QueuePair<Initialized>)> {
        let pd = ProtectionDomain::new(context)?;
        let cq = CompletionQueue::new(context, 64)?;
        let queue_pair = QueuePair::builder(&pd, &cq).build()?;
        let inbox = MemoryRegion::register(&pd, vec![0; Grant::BYTES], Access::LOCAL_WRITE)?;
        let expected = [queue_pair.receive(&[inbox.all()])?, queue_pair.receive(&[])?];
        Ok((Self { pd, inbox, expected }, queue_pair))
    }

    /// Opens a window to the peer, and writes through the peer's window. Returns the text that the peer has
    /// written.
    fn exchange(self, connection: &Connection, text: &[u8]) -> Result<String> {
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let region = MemoryRegion::register(&self.pd, vec![b'.'; 64], access)?;
        let window = Window::<Type2>::alloc(&self.pd)?;
        let window = window.bind(connection, &region.slice(16..48)?, Rights::WRITE)?.wait()?;
        connection.send(&window.grant().to_bytes())?.wait()?;

        let [granted, farewell] = self.expected;
        granted.wait()?;
        let mut bytes = [0; Grant::BYTES];
        self.inbox.read_at(0, &mut bytes)?;
        connection.write(text, Grant::from_bytes(&bytes)?)?.wait()?;
        connection.send(b"")?.wait()?;

        farewell.wait()?;
        drop(window);
        Ok(String::from_utf8_lossy(&region.deregister()?).into_owned())
    }
}

/// The device of this name, or the first.
fn open(provider: &Provider, name: Option<String>) -> Result<Context> {
    let devices = transom::devices(provider)?;
    let of_name = |name: &String| devices.iter().find(|device| device.name() == *name);
    let device = name.as_ref().map_or(devices.first(), of_name).expect("a device");
    device.open()
}

/// An IPv4 address of the device.
fn address_of(context: &Context) -> Result<IpAddr> {
    let gids = context.port(1)?.gids;
    let ip = (0..gids).find_map(|index| {
        let gid = context.gid(1, u8::try_from(index).ok()?).ok()?;
        Ipv6Addr::from(gid.0).to_ipv4_mapped().filter(|ip| *ip != Ipv4Addr::UNSPECIFIED)
    });
    Ok(ip.expect("a device with an address of IPv4").into())
}
