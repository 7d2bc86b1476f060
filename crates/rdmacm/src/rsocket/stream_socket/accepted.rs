//! The sockets that a listener makes from requests.

use std::sync::Arc;

use super::{Phase, STRANGER, StreamSocket, parameters};
use crate::connect::{accept, reject};
use crate::entry::note;
use crate::rsocket::own_id::{Happened, OwnId};
use crate::rsocket::protocol::Introduction;
use crate::rsocket::settings::{Options, Settings};
use crate::rsocket::stream::Stream;
use crate::rsocket::wait::Waiting;
use crate::wrong::Wrong;

/// An accepted socket, with the descriptor that threads wait on.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) waiting: Waiting,
    pub(crate) socket: StreamSocket,
}

/// Makes a socket from a request, or refuses the request.
pub(super) fn accepted(
    listener: &OwnId,
    request: Happened,
    settings: Settings,
    options: Options,
) -> Result<Accepted, Wrong> {
    let provider = listener.id().provider;
    // SAFETY: the request has just arrived, and nobody else has its id.
    let own = unsafe { OwnId::of_request(provider, request.request) }?;
    serve(own, &request.data, settings, options).map_err(|(own, wrong)| {
        note(c"raccept", &wrong);
        // SAFETY: the id is live, and no data is given.
        let _ = unsafe { reject(own.id().pointer(), std::ptr::null(), 0, 0) };
        wrong
    })
}

fn serve(
    own: OwnId,
    data: &[u8],
    settings: Settings,
    options: Options,
) -> Result<Accepted, (OwnId, Wrong)> {
    let ready = || {
        let peer = Introduction::read(data).ok_or(STRANGER)?;
        let waiting = Waiting::new()?;
        waiting.watch(own.descriptor())?;
        let mut stream = Stream::create(&own, &settings)?;
        let accept = |stream: &mut Stream| {
            waiting.watch(stream.descriptor())?;
            stream.met(&peer, false);
            let data = stream.introduction(&settings).bytes();
            // SAFETY: the data is as long as the parameters say.
            unsafe { accept(own.id(), Some(&parameters(&data))) }
        };
        accept(&mut stream).inspect_err(|_| stream.end(&own))?;
        Ok((waiting, stream))
    };
    match ready() {
        Ok((waiting, stream)) => {
            let socket = StreamSocket {
                phase: Phase::Connected,
                stream: Some(Box::new(stream)),
                own: Arc::new(own),
                settings,
                options,
                error: None,
                bound: None,
                route: Vec::new(),
                mapped: Vec::new(),
            };
            Ok(Accepted { waiting, socket })
        }
        Err(wrong) => Err((own, wrong)),
    }
}
