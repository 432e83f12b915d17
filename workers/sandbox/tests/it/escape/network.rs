//! Sockets of every kind.

use std::{
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
};

use super::*;

const EPERM: &str = "Operation not permitted";

/// No socket can be made at all.
#[tokio::test(flavor = "multi_thread")]
async fn sec_49_no_socket_of_any_family_is_made() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        // unix, inet, inet6, netlink, packet, bluetooth, alg, vsock, xdp; stream, datagram, raw.
        for family in [1, 2, 10, 16, 17, 31, 38, 40, 44] {
            for kind in [1, 2, 3] {
                let code =
                    format!("socket(my $s, {family}, {kind}, 0) ? print 'ESCAPED' : print $!");
                let Some(request) = perl(&code) else { return };
                let said = cell.attempt_with(request).await;
                assert_eq!(said, EPERM, "family {family}, kind {kind}");
            }
        }
        // Pairs are pipes that go both ways; they lead nowhere else.
        let pair = "socketpair(my $a, my $b, 1, 1, 0) ? print 'pair' : print $!";
        let Some(request) = perl(pair) else { return };
        assert_eq!(cell.attempt_with(request).await, "pair");
    }
}

/// The broker on the host's loopback: by the filter, else by Landlock, else because there is no network.
#[tokio::test(flavor = "multi_thread")]
async fn sec_49_a_server_on_the_hosts_loopback_is_out_of_reach() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a server");
    let port = server.local_addr().expect("an address").port();
    let code = format!(
        "use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0) or print($!), exit; \
         connect($s, sockaddr_in({port}, inet_aton('127.0.0.1'))) ? print 'ESCAPED' : print $!"
    );
    let layers: &[(&[&str], &str)] = &[
        (&[], EPERM),
        (&["seccomp"], "Permission denied"),
        (&["seccomp", "landlock"], "Network is unreachable"),
        (&["landlock", "net_ns"], EPERM),
    ];
    held_by(|_| perl(&code), layers).await;
}

/// A datagram: by the filter, else because there is no network.
#[tokio::test(flavor = "multi_thread")]
async fn sec_49_no_datagram_leaves() {
    let code = "use Socket; socket(my $s, PF_INET, SOCK_DGRAM, 0) or print($!), exit; \
                send($s, 'x', 0, sockaddr_in(53, inet_aton('127.0.0.1'))) ? print 'ESCAPED' : print $!";
    let layers: &[(&[&str], &str)] = &[
        (&[], EPERM),
        (&["seccomp"], "Network is unreachable"),
        (&["seccomp", "landlock"], "Network is unreachable"),
    ];
    held_by(|_| perl(code), layers).await;
}

/// An abstract Unix socket: by the filter, else by Landlock's scope, else by the network namespace.
#[tokio::test(flavor = "multi_thread")]
async fn sec_49_abstract_sockets_of_the_host_are_out_of_reach() {
    let name = format!("teamster-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _server = UnixListener::bind_addr(&address).expect("a server");
    let code = format!(
        "use Socket; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or print($!), exit; \
         connect($s, pack('S a*', 1, \"\\0{name}\")) ? print 'ESCAPED' : print $!"
    );
    let layers: &[(&[&str], &str)] = &[
        (&[], EPERM),
        (&["seccomp", "landlock"], "Connection refused"),
        (&["seccomp", "net_ns"], EPERM),
    ];
    held_by(|_| perl(&code), layers).await;
}

/// A Unix socket in the file system: outside by the filter, else by the private root; in the workspace by the filter alone.
#[tokio::test(flavor = "multi_thread")]
async fn sec_49_sockets_in_the_file_system_are_out_of_reach() {
    let connect = |path: String| {
        perl(&format!(
            "use Socket; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or print($!), exit; \
             connect($s, sockaddr_un('{path}')) ? print 'ESCAPED' : print $!"
        ))
    };
    let outside = |cell: &Cell| {
        let path = cell.outside.path().join("bus.sock");
        let server = UnixListener::bind(&path).expect("a server");
        open(&path);
        // It lives as long as the test.
        std::mem::forget(server);
        connect(path.to_str().expect("a text path").to_owned())
    };
    let layers: &[(&[&str], &str)] = &[(&[], EPERM), (&["seccomp"], "No such file or directory")];
    held_by(outside, layers).await;
    let inside = |cell: &Cell| {
        let path = cell.bench.work.path().join("dev.sock");
        let server = UnixListener::bind(&path).expect("a server");
        open(&path);
        std::mem::forget(server);
        connect("/workspace/dev.sock".to_owned())
    };
    held_by(inside, &[(&[], EPERM), (&["landlock"], EPERM)]).await;
}
