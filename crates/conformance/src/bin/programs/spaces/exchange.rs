//! Our own program `exchange` across the wire. It checks every byte that it moves.

use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::Running;
use transom_conformance::spaces::Side;

use crate::installation::Installation;
use crate::place::Wire;

/// How long a step may take. A bad network costs time.
const LIMIT: Duration = Duration::from_secs(300);
/// The first port to meet on. Nobody else is in the namespaces.
const PORT: u16 = 18600;
/// The usual timeout for an acknowledgement, about 67 ms, as `ibv_modify_qp` takes it.
const TIMEOUT: u8 = 14;
/// A timeout that, with all its retries, waits for a stopped process: about 2 s each.
const LONG_TIMEOUT: u8 = 19;

/// Runs of `exchange` over one wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange<'a> {
    pub(super) installation: &'a Installation,
    pub(super) wire: &'a Wire<'a>,
    pub(super) rounds: u32,
}

/// Two processes that exchange data.
struct Both {
    server: Running,
    client: Running,
}

impl Exchange<'_> {
    /// Runs some pairs of processes at once, until all rounds are done. Returns how many bytes were checked.
    pub(super) fn pairs(&self, count: u16) -> Result<String, String> {
        let rounds = format!("--rounds {}", self.rounds);
        let mut pairs = Vec::new();
        for index in 0..count {
            pairs.push(self.start(index, TIMEOUT, &rounds)?);
        }
        let mut bytes = 0;
        for Both { server, client } in pairs {
            bytes += checked(client)? + checked(server)?;
        }
        Ok(format!("{bytes} bytes checked"))
    }

    /// Runs four pairs of processes. One process is killed and one is stopped. The others go on, and so does the
    /// stopped one afterwards. A status tells the peer of the killed one.
    pub(super) fn four_with_two_lost(&self) -> Result<String, String> {
        let mut killed = self.start(0, TIMEOUT, "")?;
        let mut stopped = self.start(1, LONG_TIMEOUT, "")?;
        let mut others = [self.start(2, TIMEOUT, "")?, self.start(3, TIMEOUT, "")?];
        for pair in others.iter_mut().chain([&mut killed, &mut stopped]) {
            pair.goes_on()?;
        }
        stopped.server.signal(libc::SIGSTOP);
        killed.client.signal(libc::SIGKILL);
        for pair in &mut others {
            pair.goes_on()?;
        }
        stopped.server.signal(libc::SIGCONT);
        stopped.goes_on()?;
        let mut bytes = 0;
        for Both { server, mut client } in others.into_iter().chain([stopped]) {
            client.end_input();
            bytes += checked(client)? + checked(server)?;
        }
        let (status, printed) = killed.server.end(LIMIT)?;
        let told =
            "the other end is gone, and a request to it fails: transport retry counter exceeded";
        if status.success() || !printed.complaints.contains(told) {
            return Err(format!("the killed one's peer: {status}\n{}", printed.complaints));
        }
        Ok(format!("{bytes} bytes checked"))
    }

    /// Starts two processes that meet.
    fn start(&self, index: u16, timeout: u8, options: &str) -> Result<Both, String> {
        let port = PORT + index;
        let mut server = Running::start(&mut self.command(Side::Far, port, timeout, options)?);
        server.wait_until_it_listens(port)?;
        let mut client = self.command(Side::Near, port, timeout, options)?;
        let address = self.wire.pair.address(Side::Far, self.wire.family);
        let client = Running::start_until_told(client.arg(address.to_string()));
        Ok(Both { server, client })
    }

    fn command(
        &self,
        side: Side,
        port: u16,
        timeout: u8,
        options: &str,
    ) -> Result<Command, String> {
        let program = self.installation.own("exchange")?;
        let mut command = match self.wire.faults {
            None => program,
            Some(faults) => {
                let mut transom = self.installation.transom()?;
                transom.args(["run", "--fault", faults, "--"]).arg(program.get_program());
                transom
            }
        };
        let gid = self.wire.gid(side);
        let mtu = self.wire.pair.path_mtu();
        let all = format!("-p {port} -g {gid} -m {mtu} -t {timeout} -s {port}");
        command.args(all.split_whitespace()).args(options.split_whitespace());
        self.wire.pair.space(side).enter(&mut command);
        Ok(command)
    }
}

impl Both {
    /// Waits until the client has done more rounds.
    fn goes_on(&mut self) -> Result<(), String> {
        self.client.skip_lines()?;
        // The rounds of the first line may have been done before.
        self.client.line(LIMIT)?;
        self.client.line(LIMIT).map(drop)
    }
}

/// Waits until a process succeeds. Returns the number of bytes that it has checked.
fn checked(process: Running) -> Result<u64, String> {
    let printed = process.success(LIMIT)?;
    let words = |line: &str| Some(line.strip_suffix(" bytes checked")?.rsplit(' ').next()?.parse());
    match printed.output.lines().last().and_then(words) {
        Some(Ok(bytes)) => Ok(bytes),
        _ => Err(format!("no last line in\n{}", printed.output)),
    }
}
