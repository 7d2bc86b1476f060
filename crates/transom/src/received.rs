//! Received datagrams.

use crate::copy::check_range;
use crate::error::non_null;
use crate::{
    AddressHandle, Completion, Datagram, Destination, Posted, QueuePair, Result, Slice, Source,
};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use transom_abi::*;

/// The length of the global routing header before the payload, in bytes (rule UD-01).
const HEADER: usize = 40;

/// A posted receive of a datagram: a [`Posted`] that returns the datagram.
#[must_use = "the datagram is lost unless you wait for it"]
pub struct Receiving {
    posted: Posted,
    buffer: Slice,
}

impl Receiving {
    pub(crate) fn post(
        buffer: &Slice,
        post: impl FnOnce(&[Slice]) -> Result<Posted>,
    ) -> Result<Self> {
        check_range("the buffer", 0..HEADER as u64, buffer.len() as u64)?;
        let posted = post(std::slice::from_ref(buffer))?;
        Ok(Self { posted, buffer: buffer.clone() })
    }

    /// Waits for the datagram.
    ///
    /// # Errors
    /// [`Error::Work`](crate::Error::Work) if the receive failed,
    /// [`Error::Verb`](crate::Error::Verb) if the device did.
    pub fn wait(mut self) -> Result<ReceivedDatagram> {
        let completion = self.posted.outcome()?;
        Ok(self.received(completion))
    }

    /// Waits for the datagram, up to a timeout. `None` when the time is up; you may wait again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<ReceivedDatagram>> {
        let completion = self.posted.wait_timeout(timeout)?;
        Ok(completion.map(|completion| self.received(completion)))
    }

    /// Polls the queue once and takes the datagram if it is there.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<ReceivedDatagram>> {
        let completion = self.posted.try_wait()?;
        Ok(completion.map(|completion| self.received(completion)))
    }

    fn received(&self, completion: Completion) -> ReceivedDatagram {
        ReceivedDatagram { completion, buffer: self.buffer.clone() }
    }
}

impl Future for Receiving {
    type Output = Result<ReceivedDatagram>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.posted).poll(context);
        outcome.map(|outcome| outcome.map(|completion| self.received(completion)))
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiving").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

/// A received datagram, with its buffer.
#[derive(Clone, Debug)]
pub struct ReceivedDatagram {
    completion: Completion,
    buffer: Slice,
}

impl ReceivedDatagram {
    /// The completion of the receive. Its length counts the header.
    pub fn completion(&self) -> &Completion {
        &self.completion
    }

    /// The length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.payload().len()
    }

    /// Whether it has no payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part of the buffer with the payload: behind the header.
    pub fn payload(&self) -> Slice {
        let end = self.completion.length().clamp(HEADER, self.buffer.len());
        self.buffer.slice(HEADER..end).expect("a buffer with room for the header was posted")
    }

    /// The payload, copied out.
    pub fn to_vec(&self) -> Vec<u8> {
        let payload = self.payload();
        let mut bytes = vec![0; payload.len()];
        payload.read_at(0, &mut bytes).expect("it is as long as the payload");
        bytes
    }

    /// The global routing header, if the datagram came with one. With IPv4, the IP header is its last 20 bytes (rule
    /// UD-02).
    pub fn header(&self) -> Option<[u8; HEADER]> {
        let mut header = [0; HEADER];
        self.buffer.read_at(0, &mut header).expect("the buffer begins with the header");
        self.source().has_header.then_some(header)
    }

    /// The sender.
    pub fn source(&self) -> Source {
        self.completion.source().expect("a receive of a datagram completes with its source")
    }

    /// The sender as a destination for answers from this queue pair; see `ibv_create_ah_from_wc(3)`. The datagram does
    /// not carry the sender's key. Usually all peers use the same key.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EINVAL if the header was overwritten meanwhile or the datagram was sent to a
    /// multicast group, ENOMEM if the device has no more address handles.
    pub fn sender(&self, queue_pair: &QueuePair<Datagram>, qkey: u32) -> Result<Destination> {
        let source = self.source();
        let mut wc = ibv_wc {
            src_qp: source.queue_pair,
            wc_flags: if source.has_header { IBV_WC_GRH } else { 0 },
            slid: source.lid,
            sl: source.service_level,
            dlid_path_bits: source.path_bits,
            ..ibv_wc::default()
        };
        // SAFETY: the header is 40 bytes, and any bytes are valid.
        let mut grh: ibv_grh = unsafe {
            std::mem::transmute::<[u8; HEADER], ibv_grh>(self.header().unwrap_or([0; HEADER]))
        };
        let connection = &queue_pair.inner;
        let domain = connection.parts.domain.as_ref().expect("it was built in a domain");
        let verbs = connection.device().provider.verbs;
        // SAFETY: the domain is allocated; completion and header are valid.
        let ah = unsafe {
            let (wc, grh) = (&raw mut wc, &raw mut grh);
            (verbs.ibv_create_ah_from_wc)(domain.pd, wc, grh, connection.creation.port)
        };
        let subject = format_args!("answering queue pair {:#x}", source.queue_pair);
        let ah = non_null("ibv_create_ah_from_wc", subject, ah)?.as_ptr();
        // SAFETY: the handle was made just now.
        let address = unsafe { AddressHandle::from_raw(ah, domain.clone()) };
        Ok(Destination { address, queue_pair: source.queue_pair, qkey })
    }

    /// The buffer, so that you can post it again.
    pub fn into_buffer(self) -> Slice {
        self.buffer
    }
}
