//! A Rust program for Linux: threads, channels, files, a child process, and two tokio runtimes with
//! tasks, timers, files and TCP. It stops at the first thing that is wrong.
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex, mpsc};

use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

fn threads() {
    let sum = Arc::new(Mutex::new(0u64));
    let barrier = Arc::new(Barrier::new(8));
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..8u64)
        .map(|number| {
            let (sum, barrier, sender) = (sum.clone(), barrier.clone(), sender.clone());
            thread::Builder::new()
                .name(format!("worker {number}"))
                .spawn(move || {
                    barrier.wait();
                    for i in 0..10_000 {
                        *sum.lock().unwrap() += i;
                    }
                    sender.send((number, thread::current().name().unwrap().to_owned())).unwrap();
                })
                .unwrap()
        })
        .collect();
    drop(sender);
    let names: BTreeMap<u64, String> = receiver.iter().collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*sum.lock().unwrap(), 8 * 49_995_000);
    println!("threads: {} results, sum {}", names.len(), sum.lock().unwrap());
    // A panic, without its message.
    let panicking = thread::spawn(|| std::panic::resume_unwind(Box::new(7_u32)));
    let caught = panicking.join().map_err(|value| value.downcast_ref::<u32>().copied());
    assert_eq!(caught, Err(Some(7)));
}

fn files() {
    let path = "/tmp/rust.txt";
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .unwrap();
    for line in 0..1000 {
        writeln!(file, "line {line}").unwrap();
    }
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 1000);
    std::fs::rename(path, "/tmp/rust2.txt").unwrap();
    assert_eq!(std::fs::metadata("/tmp/rust2.txt").unwrap().len(), text.len() as u64);
    assert!(std::fs::metadata(path).is_err());
    std::fs::create_dir_all("/tmp/a/b").unwrap();
    std::fs::copy("/tmp/rust2.txt", "/tmp/a/b/c").unwrap();
    let names: Vec<_> =
        std::fs::read_dir("/tmp/a/b").unwrap().map(|e| e.unwrap().file_name()).collect();
    println!("files: {} bytes, {:?}", text.len(), names);
    std::fs::remove_dir_all("/tmp/a").unwrap();
    std::fs::remove_file("/tmp/rust2.txt").unwrap();
}

fn children() {
    let program = std::env::args().next().unwrap();
    let output = Command::new(&program).arg("child").env("GREETING", "hello").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "hello from the child\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "its errors\n");
    assert_eq!(output.status.code(), Some(3));
    println!("children: {}", output.status);
}

fn be_a_child() -> ! {
    println!("{} from the child", std::env::var("GREETING").unwrap());
    eprintln!("its errors");
    std::process::exit(3)
}

async fn network() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut served = 0;
        while served < 50 {
            let (mut stream, _) = listener.accept().await.unwrap();
            served += 1;
            tokio::spawn(async move {
                let mut bytes = [0; 1024];
                loop {
                    let count = stream.read(&mut bytes).await.unwrap();
                    if count == 0 {
                        break;
                    }
                    stream.write_all(&bytes[..count]).await.unwrap();
                }
            });
        }
    });
    let clients: Vec<_> = (0..50u8)
        .map(|number| {
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut answer = vec![0; 3000];
                for round in 0..10u8 {
                    let text = vec![number ^ round; 3000];
                    let (mut from, mut to) = stream.split();
                    let (_, written) =
                        tokio::join!(from.read_exact(&mut answer), to.write_all(&text));
                    written.unwrap();
                    assert_eq!(answer, text);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    server.await.unwrap();
    println!("network: 50 clients, 10 echoes each");
    let refused = TcpStream::connect("127.0.0.1:1").await.unwrap_err();
    println!("network: {}", refused.kind());
}

async fn tasks() {
    let begin = Instant::now();
    let sleeps: Vec<_> = (0..200u64)
        .map(|i| {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(i % 20)).await;
                i
            })
        })
        .collect();
    let mut sum = 0;
    for sleep in sleeps {
        sum += sleep.await.unwrap();
    }
    assert!(begin.elapsed() >= Duration::from_millis(19));
    let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
    tokio::spawn(async move {
        for i in 0..1000u32 {
            sender.send(i).await.unwrap();
        }
    });
    let mut count = 0;
    while let Some(i) = receiver.recv().await {
        assert_eq!(i, count);
        count += 1;
    }
    println!("tasks: sum {sum}, {count} messages");
    let late = tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
    assert!(late.is_err());
    tokio::fs::write("/tmp/tokio.txt", "written by tokio").await.unwrap();
    println!("tokio::fs: {}", tokio::fs::read_to_string("/tmp/tokio.txt").await.unwrap());
    let blocking = tokio::task::spawn_blocking(|| {
        std::thread::sleep(Duration::from_millis(3));
        42
    });
    println!("spawn_blocking: {}", blocking.await.unwrap());
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("child") {
        be_a_child();
    }
    threads();
    files();
    children();
    let several = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    several.block_on(async {
        tasks().await;
        network().await;
    });
    drop(several);
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    one.block_on(async {
        tasks().await;
        network().await;
    });
    drop(one);
    println!("rust is in order");
    std::process::exit(9);
}
