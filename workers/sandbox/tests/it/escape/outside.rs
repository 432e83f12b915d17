//! Files, processes and the kernel of the host.

use serde_json::json;

use super::*;

const GONE: &str = "No such file or directory";
const EACCES: &str = "Permission denied";
const EPERM: &str = "Operation not permitted";
const READ_ONLY: &str = "Read-only file system";

/// The root has no such file; if it had, Landlock would have no rule for it.
#[tokio::test(flavor = "multi_thread")]
async fn sec_47_a_file_of_the_host_is_not_there_and_not_open() {
    let layers: &[(&[&str], &str)] = &[(&[], GONE), (&["landlock"], GONE), (&["mount_ns"], EACCES)];
    held_by(|cell| sh(format!("cat {}", cell.secret())), layers).await;
    held_by(
        |cell| sh(format!("ln -sf {} link; cat link", cell.secret())),
        layers,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_47_secrets_of_other_processes_are_out_of_reach() {
    let worker = std::process::id();
    for who in Who::all() {
        let cell = Cell::new(who).await;
        for line in [
            "cat /proc/self/environ /proc/thread-self/environ; env",
            "cat /proc/1/environ",
            "cat /proc/1/mem",
            "ls -l /proc/1/fd /proc/1/root /proc/1/cwd",
            "readlink /proc/1/exe && echo ESCAPED",
            "cat /proc/*/environ",
            &format!("cat /proc/{worker}/environ"),
            &format!("kill -0 {worker} && echo ESCAPED"),
            "for fd in 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do eval \"cat <&$fd\"; done",
            "cat $HOME/.ssh/* /roo?/.ssh/* /home/*/.ssh/* /etc/shadow /etc/gshadow",
            "cat /var/log/* /run/* /boot/* /sys/kernel/* /proc/kcore /proc/kallsyms /proc/cmdline",
        ] {
            cell.attempt(line).await;
        }
        // What is open is the streams and the listing itself.
        let listed = cell.attempt("ls /proc/self/fd").await;
        assert_eq!(
            listed.split_whitespace().collect::<Vec<_>>(),
            ["0", "1", "2", "3"]
        );
        let cut = cell.attempt("cat <&9").await;
        assert!(
            cut.contains("9: Bad fd") || cut.contains("Bad file descriptor"),
            "{cut}"
        );
        let environ = cell.attempt("cat /proc/1/environ").await;
        assert!(environ.contains(EACCES), "{environ}");
        let processes = cell.attempt("ls -d /proc/[0-9]*").await;
        assert!(processes.split_whitespace().count() <= 3, "{processes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_is_written() {
    for path in [
        "/new",
        "/etc/new",
        "/usr/new",
        "/usr/bin/env",
        "/dev/new",
        "/proc/new",
    ] {
        for who in Who::all() {
            for without in [&[][..], &["landlock"], &["seccomp"]] {
                let cell = Cell::without(who, without).await;
                let said = cell
                    .attempt(&format!("echo x >> {path} && echo ESCAPED"))
                    .await;
                assert!(
                    [READ_ONLY, EACCES, GONE, "nonexistent"]
                        .iter()
                        .any(|why| said.contains(why)),
                    "{path} without {without:?}: {said}"
                );
            }
        }
    }
    let layers: &[(&[&str], &str)] = &[(&["mount_ns"], EACCES)];
    held_by(
        |cell| sh(format!("echo x > {}/new", cell.outside.path().display())),
        layers,
    )
    .await;
}

/// The kernel's settings and the devices are not there, whoever asks.
#[tokio::test(flavor = "multi_thread")]
async fn the_kernels_settings_and_devices_are_not_there() {
    for who in Who::all() {
        let cell = Cell::without(who, &["landlock", "seccomp"]).await;
        for line in [
            "echo x > /proc/sys/kernel/core_pattern && echo ESCAPED",
            "echo x > /proc/sys/kernel/hostname && echo ESCAPED",
            "echo b > /proc/sysrq-trigger && echo ESCAPED",
            "ls /sys/* && echo ESCAPED",
            "ls /dev/mem /dev/kmem /dev/kmsg /dev/sda /dev/vda /dev/kvm /dev/fuse /dev/tty /dev/ptmx /dev/net/tun | grep . && echo ESCAPED",
        ] {
            cell.attempt(line).await;
        }
        let devices = cell.attempt("ls /dev").await;
        assert_eq!(
            devices.split_whitespace().collect::<Vec<_>>(),
            [
                "fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom",
                "zero"
            ]
        );
    }
}

/// Refused by the filter; without it by missing rights in a namespace below which there is none.
#[tokio::test(flavor = "multi_thread")]
async fn what_needs_rights_is_refused_by_two_layers() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("NOT RUN: the numbers are those of x86-64");
        return;
    }
    for who in Who::all() {
        for without in [&[][..], &["seccomp"]] {
            let cell = Cell::without(who, without).await;
            for (name, code) in [
                ("ptrace of process 1", "syscall(101, 16, 1, 0, 0)"),
                ("chroot", "syscall(161, my $a = '/tmp')"),
                ("sethostname", "syscall(170, my $a = 'x', 1)"),
                (
                    "reboot",
                    "syscall(169, 0xfee1dead, 672274793, 0x89abcdef, 0)",
                ),
                ("init_module", "syscall(175, my $a = 'x', 1, my $b = '')"),
                ("kexec_load", "syscall(246, 0, 0, 0, 0)"),
                ("swapon", "syscall(167, my $a = '/tmp/x', 0)"),
                (
                    "mount",
                    "syscall(165, my $a = 'tmpfs', my $b = '/tmp', my $c = 'tmpfs', 0, 0)",
                ),
                ("umount2", "syscall(166, my $a = '/workspace', 2)"),
                (
                    "mknod of a disk",
                    "syscall(133, my $a = '/tmp/disk', 0060666, 2048)",
                ),
            ] {
                let code = format!("{code} == 0 ? print 'ESCAPED' : print $!");
                let Some(request) = perl(&code) else { return };
                let said = cell.attempt_with(request).await;
                let is_held = said.contains(EPERM)
                    || (!without.is_empty() && said.contains("Function not implemented"));
                assert!(is_held, "{name} without {without:?}: {said}");
            }
        }
    }
}

/// Ways into the kernel that the filter alone closes. What they would reach is inside of the other layers.
#[tokio::test(flavor = "multi_thread")]
async fn doors_to_the_kernel_are_closed_by_the_filter() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("NOT RUN: the numbers are those of x86-64");
        return;
    }
    for who in Who::all() {
        let cell = Cell::new(who).await;
        for (name, code, why) in [
            (
                "io_uring_setup",
                "syscall(425, 8, my $b = \"\\0\" x 120)",
                EPERM,
            ),
            ("io_uring_enter", "syscall(426, 0, 0, 0, 0, 0)", EPERM),
            ("bpf", "syscall(321, 0, my $b = \"\\0\" x 64, 64)", EPERM),
            ("keyctl", "syscall(250, 0, -3, 1)", EPERM),
            (
                "add_key",
                "syscall(248, my $a = 'user', my $b = 'x', my $c = 'y', 1, -3)",
                EPERM,
            ),
            ("userfaultfd", "syscall(323, 1)", EPERM),
            (
                "perf_event_open",
                "syscall(298, my $b = \"\\0\" x 120, 0, -1, -1, 0)",
                EPERM,
            ),
            ("process_vm_readv", "syscall(310, 1, 0, 0, 0, 0, 0)", EPERM),
            ("pidfd_getfd", "syscall(438, 0, 0, 0)", EPERM),
            ("open_by_handle_at", "syscall(304, 0, 0, 0)", EPERM),
            ("fsopen", "syscall(430, my $a = 'tmpfs', 0)", EPERM),
            ("open_tree", "syscall(428, -100, my $a = '/', 1)", EPERM),
            ("setns", "syscall(308, 0, 0)", EPERM),
            ("personality", "syscall(135, 0x0400000)", EPERM),
            ("clone3", "syscall(435, 0, 0)", "Function not implemented"),
            (
                "openat2",
                "syscall(437, -100, my $a = '/', 0, 0)",
                "Function not implemented",
            ),
            (
                "getpid of x32",
                "syscall(0x40000000 + 39)",
                "Function not implemented",
            ),
            ("chmod u+s", "chmod(04755, '/tmp') ? 1 : -1", EPERM),
            (
                "open u+s",
                "syscall(2, my $a = '/tmp/s', 0101, 04755)",
                EPERM,
            ),
        ] {
            let code = format!("my $r = {code}; print $r == -1 ? $! : 'ESCAPED'");
            let Some(request) = perl(&code) else { return };
            let said = cell.attempt_with(request).await;
            assert!(said.contains(why), "{name}: {said}");
        }
    }
}

/// Refused by the filter; without it by the bound on namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_namespace_inside() {
    let layers: &[(&[&str], &str)] = &[(&[], EPERM), (&["seccomp"], "No space left on device")];
    held_by(|_| sh("unshare --user true"), layers).await;
    held_by(
        |_| sh("unshare --user --map-root-user --mount true"),
        layers,
    )
    .await;
}

/// Programs that run as their owner on the host do not inside: no new privileges, and mounts without set-id.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_becomes_somebody_else() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        let status = cell
            .attempt("id -u; grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status")
            .await;
        let none = "\t0000000000000000\n";
        assert_eq!(
            status,
            format!("1000\nCapInh:{none}CapPrm:{none}CapEff:{none}CapAmb:{none}NoNewPrivs:\t1\n")
        );
        let mounts = cell.attempt("cat /proc/self/mountinfo").await;
        assert!(
            mounts.lines().all(|line| line.contains("nosuid")),
            "{mounts}"
        );
        for line in [
            "su -c 'echo ESCAPED'",
            "cp /usr/bin/id id; chmod u+s id && echo ESCAPED",
            "chmod g+s /tmp && echo ESCAPED",
            "chown 0 . && test \"$(id -u)\" = 0 && echo ESCAPED",
        ] {
            cell.attempt(line).await;
        }
    }
}

/// There is no terminal to type into; the filter refuses the attempt before that is even asked.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_typed_into_a_terminal() {
    let code = "ioctl(STDIN, 0x5412, my $c = 'x') ? print 'ESCAPED' : print $!";
    held_by(
        |_| perl(code),
        &[
            (&[], EPERM),
            (&["seccomp"], "Inappropriate ioctl for device"),
        ],
    )
    .await;
    held_by(|_| sh("echo x > /dev/tty"), &[(&[], "/dev/tty")]).await;
}

/// Process 1 of the namespace cannot be ended from inside, and nothing outside can be seen.
#[tokio::test(flavor = "multi_thread")]
async fn process_1_cannot_be_killed() {
    for who in Who::all() {
        for without in [&[][..], &["landlock", "seccomp"]] {
            let cell = Cell::without(who, without).await;
            let said = cell
                .attempt("kill -9 1; kill -STOP 1; kill -TERM 1; kill -9 -1; echo alive")
                .await;
            // The last signal ends everything but process 1 and its sender.
            assert!(said.contains("alive\n"), "{said}");
        }
    }
}

/// The variables of a command's environment are the command's: the stages before it do not see them.
#[tokio::test(flavor = "multi_thread")]
async fn a_commands_environment_does_not_reach_the_stages() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        let reply = cell
            .bench
            .ask(json!({
                "argv": ["sh", "-c", "env | sort"],
                "env": {"LD_PRELOAD": "/workspace/none.so", "RUST_LOG": "trace", "PATH": "/usr/bin:/bin"},
            }))
            .await;
        let text = reply["stdout"]["text"].as_str().expect("text");
        assert!(text.contains("LD_PRELOAD=/workspace/none.so"), "{reply}");
        assert!(text.contains("PATH=/usr/bin:/bin\n"), "{reply}");
        // The shell itself complains about the library, so whatever had it would have too.
        let complaints = reply["stderr"]["text"].as_str().expect("text");
        assert!(complaints.matches("none.so").count() <= 3, "{complaints}");
    }
}

/// A crash leaves no memory behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_leaves_no_core() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        cell.attempt(
            "ulimit -c unlimited; sh -c 'kill -SEGV $$'; ls | grep -i core && echo ESCAPED",
        )
        .await;
        let left = std::fs::read_dir(cell.bench.work.path())
            .expect("a listing")
            .count();
        assert_eq!(left, 0);
    }
}
