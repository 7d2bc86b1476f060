//! The kinds of mistakes, gravest first.

/// Whether a kind is certainly a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// A mistake, whatever the adapter. A correct program has none.
    Finding,
    /// It works here. Elsewhere it may cost time, hide an error, or fail.
    Note,
}

macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $kind:ident $name:literal $rule:literal $gravity:ident
            $title:literal
            $instead:literal
            $man:literal;
    )+) => {
        /// A kind of mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)+
        }

        impl Kind {
            /// All kinds, gravest first.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Its name for users, such as `work-lost`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// Its rule in `spec/rules.md`, such as `CHK-01`.
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Self::$kind => $rule,)+
                }
            }

            /// Whether it is certainly a mistake.
            pub const fn gravity(self) -> Gravity {
                match self {
                    $(Self::$kind => Gravity::$gravity,)+
                }
            }

            /// A title of a few words.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$kind => $title,)+
                }
            }

            /// The advice: what to do instead.
            pub const fn instead(self) -> &'static str {
                match self {
                    $(Self::$kind => $instead,)+
                }
            }

            /// The man page with the rule.
            pub const fn man(self) -> &'static str {
                match self {
                    $(Self::$kind => $man,)+
                }
            }

            /// Its page, in Markdown: the mistake, its consequences, and a wrong and a right piece of code.
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$kind => include_str!(concat!("pages/", $name, ".md")),)+
                }
            }
        }
    };
}

kinds! {
    /// A queue pair is destroyed while its sends are under way.
    WorkLost "work-lost" "CHK-01" Finding
        "a queue pair is destroyed while its requests are under way"
        "Poll the completions of all requests first. To give requests up, move the queue pair to ERR, and poll until \
         each is flushed."
        "ibv_destroy_qp(3)";
    /// A region ends while requests that name it are under way.
    EndedInFlight "ended-in-flight" "CHK-63" Finding
        "memory is deregistered while requests that name it are under way"
        "Poll the completions of all requests that name a region, then deregister it."
        "ibv_dereg_mr(3)";
    /// The program uses memory that it has given back.
    MemoryGone "memory-gone" "CHK-40" Finding
        "memory is used that was given back while a region had it"
        "Deregister memory before you unmap, empty or free it, and poll the completions of all requests that name it \
         before that."
        "ibv_reg_mr(3)";
    /// A request or a peer uses memory that the program has claimed.
    ClaimedInUse "claimed-in-use" "CHK-46" Finding
        "memory is used that the program has claimed by transom.h"
        "Call transom_claim when no request names the memory any more, and transom_release before one does again."
        "ibv_post_send(3)";
    /// A source buffer changed before its request was complete.
    SourceChanged "source-changed" "CHK-60" Finding
        "a source changed between its post and its completion"
        "Poll the completion of a request before you write to its buffers again, or post it with IBV_SEND_INLINE."
        "ibv_post_send(3)";
    /// The program wrote to the target of a READ or an atomic before the request was complete.
    TargetChanged "target-changed" "CHK-61" Finding
        "a READ's target changed before its completion"
        "Poll the completion of a READ or an atomic before you write to its buffer."
        "ibv_post_send(3)";
    /// A function gets a destroyed object.
    UsedAfterDestroy "used-after-destroy" "CHK-05" Finding
        "an object is used after it was destroyed"
        "Destroy an object once, after its last use, and keep no pointer to it. If another thread uses it, stop that \
         thread before."
        "ibv_destroy_cq(3), ibv_destroy_qp(3), ibv_dereg_mr(3)";
    /// The program uses the content of an rdma_cm event after it acknowledged the event.
    UsedAfterAck "used-after-ack" "CHK-33" Finding
        "a connection event is used after it was acknowledged"
        "Copy what you need from an event, private data too, and acknowledge it afterwards, once."
        "rdma_ack_cm_event(3)";
    /// A forked child uses its parent's objects.
    ParentsObjects "parents-objects" "CHK-70" Finding
        "a forked child uses objects of its parent"
        "Open the device in the child, and make objects there; or let the child only call exec or _exit."
        "ibv_fork_init(3)";
    /// A peer uses a key of a type 1 window too early.
    KeyBeforeBind "key-before-bind" "CHK-41" Finding
        "a peer uses a key before the completion of its bind is polled"
        "Poll the completion of the bind before you send the key, or send the key on the queue pair that binds it."
        "ibv_bind_mw(3)";
    /// A peer uses a key of a bind that failed.
    FailedBindUsed "failed-bind-used" "CHK-42" Finding
        "a peer uses the key of a bind that has failed"
        "Look at the status of the bind's completion before you tell anybody the key."
        "ibv_bind_mw(3)";
    /// A thread sleeps while completions wait.
    SleepsOnCompletions "sleeps-on-completions" "CHK-50" Finding
        "a thread sleeps while completions wait for it"
        "Call ibv_req_notify_cq, then poll until the queue is empty, then sleep: in this order, each time."
        "ibv_get_cq_event(3)";
    /// A call waits for an acknowledgement that no other thread can give.
    OwnAck "own-ack" "CHK-31" Finding
        "a call waits for an event that only its own thread could acknowledge"
        "Acknowledge each event as soon as you have read it, and before you destroy its object."
        "ibv_get_cq_event(3), rdma_get_cm_event(3)";
    /// The program acknowledges more events than it got.
    AckedTooMuch "acked-too-much" "CHK-34" Finding
        "more events are acknowledged than were got"
        "Acknowledge each event once, with the object that ibv_get_cq_event or ibv_get_async_event gave for it."
        "ibv_get_cq_event(3)";
    /// A send queue is full for ever.
    NothingSignaled "nothing-signaled" "CHK-20" Finding
        "a send queue is full, and nothing in it is signaled"
        "Post at least one request per queue length with IBV_SEND_SIGNALED, and poll its completion."
        "ibv_post_send(3)";
    /// The program ignored EBUSY.
    BusyIgnored "busy-ignored" "CHK-04" Finding
        "EBUSY was ignored"
        "Destroy the objects that use it first, then the object. `transom explain` names them."
        "ibv_dealloc_pd(3)";
    /// Objects are left when their context closes.
    LeftAtClose "left-at-close" "CHK-06" Finding
        "objects are left when the device is closed"
        "Destroy all objects before you call ibv_close_device."
        "ibv_close_device(3)";
    /// A queue pair is destroyed before its completions were polled.
    CompletionsUnpolled "completions-unpolled" "CHK-02" Note
        "the completions of a queue pair were not polled before its end"
        "Poll the completions of all signaled requests first."
        "ibv_destroy_qp(3)";
    /// The device or the peer did not allow a request.
    RequestRefused "request-refused" "CHK-26" Note
        "a request was refused for what it asks"
        "Look up the key, the right, the address or the length: `transom explain` has the reason. A program may try on \
         purpose what it is not allowed."
        "ibv_poll_cq(3)";
    /// A fetch-and-add adds an address of the program.
    AddressAdded "address-added" "CHK-27" Note
        "a fetch-and-add adds an address of the program"
        "Set wr.atomic.compare_add to the number, not to the address where the program has it."
        "ibv_post_send(3)";
    /// A peer uses a key of a type 2 window early.
    KeyEarly "key-early" "CHK-47" Note
        "a peer uses the key of a type 2 window before the completion of its bind is polled"
        "Poll the completion of the bind before you tell a peer that it may use the key, or tell it on the queue pair that \
         binds it."
        "ibv_post_send(3)";
    /// A request is posted to a queue pair whose error was polled, or that is not connected.
    PostedAfterError "posted-after-error" "CHK-08" Note
        "a request is posted to a queue pair that has failed, as the program could know"
        "After the first completion with an error, stop posting. Poll until all is flushed, then reset the queue pair \
         or destroy it."
        "ibv_poll_cq(3)";
    /// A queue pair ends before its error was polled.
    ErrorUnread "error-unread" "CHK-03" Note
        "the error of a queue pair was not polled before its end"
        "Poll until all work of the queue pair is flushed: the first completion with an error says what went wrong."
        "ibv_poll_cq(3)";
    /// A fatal asynchronous event was not read.
    AsyncUnread "async-unread" "CHK-09" Note
        "a fatal asynchronous event was not read"
        "Call ibv_get_async_event when the context's async_fd is readable."
        "ibv_get_async_event(3)";
    /// A thread sleeps while completions wait, but something else may wake it.
    SleepsBeside "sleeps-beside" "CHK-51" Note
        "a thread sleeps while completions wait, until something else wakes it"
        "Call ibv_req_notify_cq, then poll until the queue is empty, then sleep: in this order, each time."
        "ibv_get_cq_event(3)";
    /// A call waits for the acknowledgement of an event: long, or its own thread has the event.
    WaitsForAck "waits-for-ack" "CHK-30" Note
        "a call waits for an event to be acknowledged"
        "Acknowledge each event as soon as you have read it, and before you destroy its object."
        "ibv_get_cq_event(3), rdma_get_cm_event(3)";
    /// Events were not acknowledged.
    NeverAcked "never-acked" "CHK-32" Note
        "events were never acknowledged"
        "Acknowledge each event that you get; several completion events of a queue with one call."
        "ibv_get_cq_event(3), rdma_get_cm_event(3)";
    /// A region ends before the completions of requests that name it were polled.
    EndedUnpolled "ended-unpolled" "CHK-65" Note
        "memory is deregistered before requests that name it were complete"
        "Poll the completions of all requests that name a region, then deregister it. Move the queue pair to ERR first \
         where receives are left."
        "ibv_dereg_mr(3)";
    /// Memory is given back while a region has it.
    GivenBack "given-back" "CHK-45" Note
        "memory was given back before its region was deregistered"
        "Deregister memory before you unmap, empty or free it. Build with -fsanitize=address to hear of peers that \
         write to freed memory."
        "ibv_dereg_mr(3)";
    /// A source buffer changed, and a peer may have changed it.
    SourceRaced "source-raced" "CHK-66" Note
        "a source that peers may write to changed between its post and its completion"
        "Make sure that peers write to the buffer only after the completion of the request, or send from a copy."
        "ibv_post_send(3)";
    /// A target changed, and a peer may have changed it, or the program may know that it may.
    TargetRaced "target-raced" "CHK-67" Note
        "a receive's buffer, or a READ's that peers may write to, changed before its completion"
        "Poll the completion of a receive or READ before you write to its buffer. Post only the part of a buffer that \
         the device may have."
        "ibv_post_recv(3)";
    /// Two queue pairs write to the same bytes.
    WritesUnordered "writes-unordered" "CHK-64" Note
        "two queue pairs write to the same bytes, and nothing orders them"
        "Poll the completion of the first WRITE before you post the second one, or post both to one queue pair. Let two \
         peers write to the same bytes in turns, which the owner of the memory or an atomic gives."
        "ibv_post_send(3)";
    /// Two targets share some bytes.
    TargetsOverlap "targets-overlap" "CHK-62" Note
        "two requests have the device write to the same bytes"
        "Give each receive, READ and atomic a buffer of its own until its completion is polled."
        "ibv_post_recv(3)";
    /// The program forks while a region has only a part of a page.
    ForkSharesPage "fork-shares-page" "CHK-71" Note
        "a child is made while a region shares a page with other data"
        "Register whole pages, and call ibv_fork_init before any other verb."
        "ibv_fork_init(3)";
    /// Objects are left when the process ends.
    LeftAtExit "left-at-exit" "CHK-07" Note
        "objects are left when the process ends"
        "Destroy them before the process ends. --leaks makes these notes findings."
        "ibv_close_device(3)";
    /// Peers still have keys when the process ends.
    OpenAtEnd "open-at-end" "CHK-43" Note
        "memory is open to peers when the process ends"
        "When your peers are done, invalidate windows and deregister regions. Only then use the memory for other data."
        "ibv_dereg_mr(3)";
    /// Rights of peers that none uses.
    RightsUnused "rights-unused" "CHK-44" Note
        "rights to write or for atomics were granted, and no peer used them"
        "Grant peers only the rights that they need. A window grants them for a part of the memory, and for a while."
        "ibv_reg_mr(3)";
    /// A queue was full, or nearly.
    QueueFull "queue-full" "CHK-21" Note
        "a queue was full, or nearly"
        "Ask for a longer queue, poll sooner, or count the posted requests that are not complete."
        "ibv_create_qp(3)";
    /// A post was refused, and the request was not posted again.
    RefusedAndDropped "refused-and-dropped" "CHK-25" Note
        "a post was refused, and the request not posted again"
        "Check the results of ibv_post_send and ibv_post_recv. The request that bad_wr names is not posted, and none after \
         it."
        "ibv_post_send(3)";
    /// A completion queue has fewer places than requests that may complete into it.
    QueueCouldOverrun "queue-could-overrun" "CHK-22" Note
        "a completion queue could overrun"
        "Ask for as many completions as all queues that complete into it have places together."
        "ibv_create_cq(3)";
    /// A peer had to wait for a receive.
    RanDry "ran-dry" "CHK-24" Note
        "a peer had to wait because no receive was posted"
        "Post receives before the peer sends, and again as soon as one completes."
        "ibv_post_recv(3)";
    /// The program uses more than it asked for.
    BeyondAsked "beyond-asked" "CHK-23" Note
        "more is used than the queue pair was asked for"
        "Ask for the sizes that you use, or read the granted sizes from `cap` after ibv_create_qp."
        "ibv_create_qp(3)";
}

impl Kind {
    /// Whether only a device that works lets a program avoid it: by polls, which fail on a device that is gone.
    pub const fn needs_device(self) -> bool {
        matches!(
            self,
            Self::WorkLost
                | Self::CompletionsUnpolled
                | Self::EndedInFlight
                | Self::EndedUnpolled
                | Self::ErrorUnread
        )
    }

    /// The kind with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_rules_are_of_one_kind_each() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(*kind));
            assert_eq!(Kind::ALL.iter().filter(|it| it.rule() == kind.rule()).count(), 1);
        }
    }

    #[test]
    fn every_kind_has_a_page_with_a_wrong_and_a_right_piece_of_code() {
        for kind in Kind::ALL {
            let page = kind.page();
            assert!(page.starts_with(&format!("# {}\n", kind.name())), "{kind:?}");
            for part in ["## Where it bites", "## Wrong", "## Right", "```c"] {
                assert!(page.contains(part), "{kind:?} has no {part:?}");
            }
        }
    }

    #[test]
    fn findings_come_before_notes() {
        assert!(Kind::ALL.is_sorted_by_key(|kind| kind.gravity()));
    }
}
