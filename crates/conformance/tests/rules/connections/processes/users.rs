//! Connections between processes of two users.

use transom_conformance::connections::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;

use super::puppet::*;

/// As a server under `sudo` and a client as oneself: the server's user has the port, and hands on what is for the
/// client.
///
/// Rules: NET-18
#[test]
fn a_client_of_another_user_connects_and_parts() {
    if !is_root() {
        return eprintln!("skipped: only root can be another user too");
    }
    alone(path_of!("a_client_of_another_user_connects_and_parts"), Way::Network, || {
        let mut passive = Puppet::start(&[]);
        // At any address, so for other hosts too.
        passive.order(&[order::HOST, 0]);
        let port = passive.ask(&[order::LISTEN, 0]);
        let mut active = Puppet::start_as_nobody();
        active.connect(&mut passive, port);
        active.part(&mut passive);
        active.expect(event::TIMEWAIT_EXIT);
        // Port 1 is nobody's, of no user.
        active.order(&[order::CONNECT, 1]);
        assert_eq!(active.expect(event::REJECTED).0, 8);
        active.finish();
        passive.expect(event::TIMEWAIT_EXIT);
        passive.finish();
    });
}

/// Requests find a server that does not have the port: those of the user who has it, and those of its own user.
///
/// Rules: NET-18
#[test]
fn a_server_of_another_user_is_found() {
    if !is_root() {
        return eprintln!("skipped: only root can be another user too");
    }
    alone(path_of!("a_server_of_another_user_is_found"), Way::Network, || {
        let mut stranger = Child::start(STRANGER);
        let [] = stranger.hear();
        let mut passive = Puppet::start_as_nobody();
        passive.order(&[order::HOST, 0]);
        let port = passive.ask(&[order::LISTEN, 0]);
        for mut active in [Puppet::start(&[]), Puppet::start_as_nobody()] {
            active.connect(&mut passive, port);
            active.part(&mut passive);
            active.expect(event::TIMEWAIT_EXIT);
            passive.expect(event::TIMEWAIT_EXIT);
            active.order(&[order::CONNECT, 1]);
            assert_eq!(active.expect(event::REJECTED).0, 8, "nobody's, of no user");
            active.finish();
        }
        // Nobody is found who listens no more.
        passive.ask(&[order::LEAVE]);
        let mut late = Puppet::start(&[]);
        late.order(&[order::CONNECT, port]);
        assert_eq!(late.expect(event::REJECTED).0, 8);
        late.finish();
        passive.finish();
        stranger.tell(&[]);
        stranger.finish();
    });
}
