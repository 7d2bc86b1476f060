//! Connections by the connection manager: requested, refused, ended from either side, and ended by a death.

use std::net::{SocketAddr, TcpListener};

use clap::ValueEnum;
use transom::{
    Access, Connection, ConnectionProblem, ConnectionRequest, Connector, Error, Initialized,
    Listener, MemoryRegion, Posted, QueuePair, Rejection,
};

use crate::end::{End, Queue, text};
use crate::talk::{Service, TIMEOUT};

/// The fate of a requested connection, as the requesting end chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Meeting {
    /// Nobody listens where it goes.
    NobodyListens,
    /// The program refuses it.
    Refused,
    /// The end that has asked disconnects.
    ClientEnds,
    /// The end that was asked does.
    ServerEnds,
    /// The process of the end that was asked is killed.
    ServerDies,
    /// The process of the end that has asked is.
    ClientDies,
    /// Nothing more will be asked.
    Over,
}

/// The private data of a refusal.
const REFUSAL: &[u8] = b"not now";
/// The first message of the requesting end.
const MESSAGE: &[u8] = b"over the transom";

/// Answers requests until the last one, or until the requesting end has died.
pub(crate) fn listen(end: &End, address: SocketAddr) -> Result<(), String> {
    let listener = Listener::bind(end.provider(), address).map_err(text)?;
    // The other end looks for this listener to know that this end listens.
    let _listens = TcpListener::bind(address).map_err(text)?;
    loop {
        let request = listener.accept().wait_timeout(6 * TIMEOUT).map_err(text)?;
        let request = request.ok_or("nobody asks")?;
        let wish = String::from_utf8_lossy(request.private_data()).into_owned();
        match Meeting::from_str(&wish, false)? {
            Meeting::Refused => request.reject(REFUSAL).map_err(text)?,
            Meeting::Over => return request.reject(b"").map_err(text),
            meeting => serve(end, request, meeting)?,
        }
        if wish == name(Meeting::ClientDies) {
            return Ok(());
        }
    }
}

fn serve(end: &End, request: ConnectionRequest, meeting: Meeting) -> Result<(), String> {
    let queue_pair = queue_pair(end)?;
    let inbox = MemoryRegion::register(end.pd(), vec![0; MESSAGE.len()], Access::LOCAL_WRITE);
    let inbox = inbox.map_err(|refused| text(refused.error))?;
    let message = queue_pair.receive(&[inbox.all()]).map_err(text)?;
    let mut accepting = request.accept(queue_pair, b"welcome").map_err(text)?;
    let connection = accepting.wait_timeout(TIMEOUT).map_err(text)?;
    let mut connection = connection.ok_or("the client does not confirm")?;
    finished(message)?;
    let mut received = [0; MESSAGE.len()];
    inbox.read_at(0, &mut received).map_err(text)?;
    if received != MESSAGE {
        return Err(format!("it says {received:?}"));
    }
    match meeting {
        Meeting::ServerEnds => connection.disconnect().map_err(text)?,
        Meeting::ServerDies => die(),
        _ => {}
    }
    ends(&mut connection)
}

/// Requests a connection with this fate. The error says what was wrong.
pub(crate) fn ask(end: &End, peer: SocketAddr, meeting: Meeting) -> Result<(), String> {
    let peer = match meeting {
        Meeting::NobodyListens => SocketAddr::new(peer.ip(), peer.port() + 1),
        _ => peer,
    };
    let connector = Connector::new(peer).private_data(name(meeting).as_bytes());
    let mut connecting = connector.connect(queue_pair(end)?).map_err(text)?;
    let outcome = connecting.wait_timeout(TIMEOUT);
    match meeting {
        Meeting::NobodyListens => refused(outcome, Rejection::is_no_listener),
        Meeting::Refused => {
            refused(outcome, |it| it.is_by_program() && &*it.private_data == REFUSAL)
        }
        Meeting::Over => refused(outcome, Rejection::is_by_program),
        _ => {
            let mut connection = outcome.map_err(text)?.ok_or("no answer")?;
            if &**connection.private_data() != b"welcome" {
                return Err(format!("the server says {:?}", connection.private_data()));
            }
            let sent = finished(connection.send(MESSAGE).map_err(text)?);
            // A peer that dies of the message may have had no time to acknowledge it.
            if meeting != Meeting::ServerDies {
                sent?;
            }
            match meeting {
                Meeting::ClientEnds => connection.disconnect().map_err(text)?,
                Meeting::ClientDies => die(),
                _ => {}
            }
            ends(&mut connection)
        }
    }
}

/// Its name on the command line, which is also the private data of the request.
pub(crate) fn name(meeting: Meeting) -> String {
    meeting.to_possible_value().expect("none is hidden").get_name().to_owned()
}

fn refused(
    outcome: transom::Result<Option<Connection>>,
    as_it_should: impl Fn(&Rejection) -> bool,
) -> Result<(), String> {
    match outcome {
        Err(Error::Connection(error)) => match &error.problem {
            ConnectionProblem::Rejected(rejection) if as_it_should(rejection) => Ok(()),
            _ => Err(error.to_string()),
        },
        outcome => Err(format!("it is not refused: {outcome:?}")),
    }
}

fn queue_pair(end: &End) -> Result<QueuePair<Initialized>, String> {
    match end.queue_pair(Service::Reliable)? {
        Queue::Initialized(queue_pair) => Ok(queue_pair),
        _ => Err("it is connected already".into()),
    }
}

fn finished(mut posted: Posted) -> Result<(), String> {
    posted.wait_timeout(TIMEOUT).map_err(text)?.ok_or("no completion").map(drop).map_err(text)
}

fn ends(connection: &mut Connection) -> Result<(), String> {
    let ended = connection.disconnection().wait_timeout(TIMEOUT).map_err(text)?;
    ended.ok_or_else(|| "the end of the connection is not told".to_owned())
}

/// Kills this process, so that it cannot tell its peer.
fn die() -> ! {
    // SAFETY: this ends only this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        std::thread::park();
    }
}
