//! Single properties: limits, errors, files without names, what other programs wrote and read.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::device::Device;
use common::image::{self, File, IMAGES, must_be_clean, repaired, tool};
use common::model::{Node, TOP, must_contain, read_all};
use common::script::{Player, Step};
use common::{Random, at, rounds, run};
use cops_ext4::{Error, Ext4, Kind, New, ROOT, SMALLEST_CACHE, SetAttributes, Time};

const NOW: Time = at(1_700_000_000);
const NEW: New = New { permissions: 0o600, user: 0, group: 0, now: NOW, hold: false };

fn open(device: &Device) -> Ext4<Device> {
    run(Ext4::open(device.clone(), SMALLEST_CACHE, NOW)).unwrap()
}

fn close(file_system: Ext4<Device>, device: &Device, context: &str) {
    run(file_system.close()).unwrap();
    must_be_clean(&device.bytes(), context);
}

fn create(file_system: &Ext4<Device>, name: &str) -> Result<u32, Error> {
    run(file_system.create(ROOT, name.as_bytes(), Kind::Regular, NEW)).map(|found| found.inode)
}

/// Changes an image by the commands of debugfs, one in each line.
fn debugfs(image: &File, commands: &str) {
    let script = File::new(commands.as_bytes());
    let mut debugfs = tool("debugfs");
    debugfs.arg("-w").arg("-f").arg(&script.0).arg(&image.0);
    let output = debugfs.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_held() {
    for (kind, size, options) in IMAGES {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let free = run(file_system.statistics()).unwrap();
        let new = New { hold: true, ..NEW };
        let file = run(file_system.create(ROOT, b"file", Kind::Regular, new)).unwrap().inode;
        assert_eq!(run(file_system.lookup_and_retain(ROOT, b"file")).map(|it| it.inode), Ok(file));
        run(file_system.write(file, 0, &[5; 100_000], NOW)).unwrap();
        run(file_system.unlink(ROOT, b"file", NOW)).unwrap();
        run(file_system.write(file, 200_000, b"end", NOW)).unwrap();
        let mut content = [0; 3];
        assert_eq!(run(file_system.read(file, 200_000, &mut content)), Ok(3));
        assert_eq!(run(file_system.link(file, ROOT, b"again", NOW)), Err(Error::NotFound));
        run(file_system.sync()).unwrap();
        let crash = device.bytes();
        run(file_system.release(file, NOW)).unwrap();
        assert_eq!(run(file_system.attributes(file)).map(|found| found.links), Ok(0));
        run(file_system.truncate(file, 1000, NOW)).unwrap();
        run(file_system.release(file, NOW)).unwrap();
        assert_eq!(run(file_system.attributes(file)), Err(Error::Stale));
        run(file_system.sync()).unwrap();
        assert_eq!(run(file_system.statistics()).unwrap(), free, "{kind}");
        close(file_system, &device, kind);
        // A crash while it was held: the next mount deletes it, and so does e2fsck.
        must_be_clean(&repaired(&crash, kind), kind);
        let device = Device::new(crash);
        let file_system = open(&device);
        assert_eq!(run(file_system.statistics()).unwrap(), free, "{kind}, after the crash");
        close(file_system, &device, kind);
    }
}

#[test]
fn a_full_disk_is_an_error_and_usable_again() {
    for (kind, size, options) in IMAGES {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let free = run(file_system.statistics()).unwrap().free_blocks;
        for round in 0..3 {
            let file = create(&file_system, "large").unwrap();
            let data = vec![round; 300_000];
            let mut position = 0;
            let full = loop {
                match run(file_system.write(file, position, &data, NOW)) {
                    Ok(count) => position += count as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!(full, Error::NoSpace, "{kind}");
            assert!(run(file_system.statistics()).unwrap().free_blocks < 8, "{kind}");
            assert_eq!(
                run(file_system.create_directory(ROOT, b"directory", NEW)),
                Err(Error::NoSpace)
            );
            assert_eq!(run(file_system.lookup(ROOT, b"directory")), Err(Error::NotFound));
            let mut content = vec![0; 300_000];
            assert_eq!(run(file_system.read(file, 0, &mut content)), Ok(300_000));
            assert!(content == data, "{kind}: content");
            run(file_system.unlink(ROOT, b"large", NOW)).unwrap();
            // Without a sync: what was freed is made available by a commit when it is needed.
        }
        run(file_system.sync()).unwrap();
        assert_eq!(run(file_system.statistics()).unwrap().free_blocks, free, "{kind}");
        close(file_system, &device, kind);
    }
}

#[test]
fn inodes_end_with_an_error() {
    let device = Device::new(image::make(8 << 20, "-b 1024 -J size=1 -N 64"));
    let file_system = open(&device);
    let free = run(file_system.statistics()).unwrap().free_inodes;
    let mut count = 0;
    let error = loop {
        match create(&file_system, &format!("file {count}")) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error, count), (Error::NoSpace, free));
    run(file_system.unlink(ROOT, b"file 3", NOW)).unwrap();
    create(&file_system, "file 3").unwrap();
    close(file_system, &device, "inodes");
}

#[test]
fn names_and_arguments_that_are_not_possible() {
    let (kind, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let long = [b'x'; 256];
    assert_eq!(run(file_system.create(ROOT, &long, Kind::Regular, NEW)), Err(Error::NameTooLong));
    assert_eq!(run(file_system.lookup(ROOT, &long)), Err(Error::NameTooLong));
    run(file_system.create(ROOT, &long[..255], Kind::Regular, NEW)).unwrap();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(run(file_system.create(ROOT, name, Kind::Regular, NEW)), Err(Error::Invalid));
    }
    let file = create(&file_system, "file").unwrap();
    assert_eq!(run(file_system.create(file, b"x", Kind::Regular, NEW)), Err(Error::NotDirectory));
    assert_eq!(run(file_system.lookup(file, b"x")), Err(Error::NotDirectory));
    assert_eq!(run(file_system.write(ROOT, 0, b"x", NOW)), Err(Error::IsDirectory));
    assert_eq!(run(file_system.write(file, u64::MAX - 2, b"xyz", NOW)), Err(Error::TooLarge));
    assert_eq!(run(file_system.truncate(file, 1 << 45, NOW)), Err(Error::TooLarge));
    assert_eq!(run(file_system.read(file, u64::MAX, &mut [0; 8])), Ok(0));
    assert_eq!(run(file_system.read_link(file)), Err(Error::Invalid));
    assert_eq!(run(file_system.link(ROOT, ROOT, b"root", NOW)), Err(Error::NotPermitted));
    assert_eq!(
        run(file_system.create_link(ROOT, b"l", &[b'x'; 4096], NEW)),
        Err(Error::NameTooLong)
    );
    for inode in [0, 1 << 31, 500, u32::MAX] {
        assert_eq!(run(file_system.attributes(inode)), Err(Error::Stale), "{inode}");
        assert_eq!(run(file_system.write(inode, 0, b"x", NOW)), Err(Error::Stale), "{inode}");
    }
    let set = SetAttributes {
        permissions: Some(0o4755),
        owner: Some((1 << 20, 7)),
        accessed: Some(at(-5)),
        modified: Some(Time { seconds: 1 << 32, nanoseconds: 999_999_999 }),
    };
    run(file_system.set_attributes(file, set, NOW)).unwrap();
    let found = run(file_system.attributes(file)).unwrap();
    assert_eq!((found.mode, found.user, found.group), (0o104_755, 1 << 20, 7));
    assert_eq!((found.accessed, Some(found.modified)), (at(-5), set.modified));
    close(file_system, &device, kind);
}

#[test]
fn a_feature_without_support_is_named() {
    for (feature, options) in [
        ("inline_data", "-O inline_data"),
        ("bigalloc", "-O bigalloc"),
        ("an image without has_journal", "-O ^has_journal"),
        ("an image without extent", "-O ^extent,^64bit"),
        ("encrypt", "-O encrypt"),
        ("mmp", "-O mmp"),
        ("quota", "-O quota"),
        ("meta_bg", "-O meta_bg,^resize_inode"),
    ] {
        let device = Device::new(image::make(12 << 20, &format!("-b 4096 {options}")));
        let opened = run(Ext4::open(device, SMALLEST_CACHE, NOW));
        assert_eq!(opened.err(), Some(Error::Unsupported(feature)));
    }
    let zeros = run(Ext4::open(Device::new(vec![0; 1 << 20]), SMALLEST_CACHE, NOW));
    assert_eq!(zeros.err(), Some(Error::Corrupt("no ext4 superblock")));
}

#[test]
fn appended_parts_stay_whole() {
    let (kind, size, options) = IMAGES[1];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let file = create(&file_system, "file").unwrap();
    let mut expected = Vec::new();
    for length in [0, 1, 1023, 1025, 40_000, 100_000, 5] {
        let data = vec![length as u8; length];
        let found = run(file_system.append(file, &data, NOW));
        assert_eq!(found, Ok((expected.len() as u64, length)));
        expected.extend(data);
    }
    let mut content = vec![0; expected.len() + 1];
    assert_eq!(run(file_system.read(file, 0, &mut content)), Ok(expected.len()));
    assert!(content[..expected.len()] == expected);
    // Until the disk is full, and then to its last block.
    while run(file_system.append(file, &[1; 30_000], NOW)).is_ok_and(|(_, count)| count == 30_000) {
    }
    let full = run(file_system.append(file, &[1; 30_000], NOW));
    assert!(matches!(full, Err(Error::NoSpace) | Ok((_, 1..30_000))), "{full:?}");
    assert!(run(file_system.statistics()).unwrap().free_blocks < 8);
    close(file_system, &device, kind);
}

/// Extents in random order make a tree of three levels; truncations take it apart.
#[test]
fn a_file_of_many_extents() {
    let (kind, _, options) = IMAGES[1];
    let device = Device::new(image::make(16 << 20, options));
    let file_system = open(&device);
    let free = run(file_system.statistics()).unwrap().free_blocks;
    let file = create(&file_system, "file").unwrap();
    let mut random = Random::new(1);
    let mut content = vec![0_u8; 3000 * 2048];
    let mut order: Vec<usize> = (0..3000).collect();
    (0..3000).for_each(|at| order.swap(at, random.below(3000) as usize));
    for index in &order {
        let data = [(index % 255) as u8 + 1; 1024];
        content[index * 2048..][..1024].copy_from_slice(&data);
        run(file_system.write(file, *index as u64 * 2048, &data, NOW)).unwrap();
    }
    let check = |file_system: &Ext4<Device>, content: &[u8]| {
        let mut found = vec![0xEE; content.len() + 10];
        assert_eq!(run(file_system.read(file, 0, &mut found)), Ok(content.len()));
        assert!(found[..content.len()] == *content);
    };
    content.truncate(2999 * 2048 + 1024);
    check(&file_system, &content);
    run(file_system.close()).unwrap();
    must_be_clean(&device.bytes(), kind);
    let file_system = open(&device);
    check(&file_system, &content);
    for size in [2_000_001, 1_999_999, 700_000, 5_000, 1_000_000, 100, 0] {
        run(file_system.truncate(file, size, NOW)).unwrap();
        content.resize(size as usize, 0);
        check(&file_system, &content);
    }
    run(file_system.sync()).unwrap();
    assert_eq!(run(file_system.statistics()).unwrap().free_blocks, free);
    close(file_system, &device, kind);
}

/// An error of the disk at each point of an operation that frees blocks. Either it fails and has
/// changed nothing, or it succeeds. What it has not freed then is freed later: by checkpoints, or
/// when the disk is full.
#[test]
fn a_deletion_that_an_error_interrupts_is_continued() {
    let (kind, size, options) = IMAGES[1];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    create(&file_system, "other").unwrap();
    let free = run(file_system.statistics()).unwrap().free_blocks;
    let file = create(&file_system, "file").unwrap();
    for extent in 0..300 {
        run(file_system.write(file, extent * 2048, &[1; 100], NOW)).unwrap();
    }
    close(file_system, &device, kind);
    let image = device.bytes();
    const UNNAMED: &str = "truncate without a name";
    for operation in ["unlink", "rename", "truncate", UNNAMED] {
        let mut interrupted = 0;
        for requests in 0.. {
            let context = format!("{kind}, {operation}, {requests} requests");
            let device = Device::new(image.clone());
            let file_system = open(&device);
            let there = |name: &[u8]| run(file_system.lookup(ROOT, name)).is_ok();
            let free_now = || run(file_system.statistics()).unwrap().free_blocks;
            let act = || match operation {
                "unlink" => run(file_system.unlink(ROOT, b"file", NOW)),
                "rename" => run(file_system.rename((ROOT, b"other"), (ROOT, b"file"), true, NOW)),
                _ => run(file_system.truncate(file, 0, NOW)).map(drop),
            };
            if operation == UNNAMED {
                run(file_system.retain(file));
                run(file_system.unlink(ROOT, b"file", NOW)).unwrap();
            }
            let before = free_now();
            device.0.lock().unwrap().fail_after = Some(requests);
            let result = act();
            let has_failed = device.0.lock().unwrap().fail_after.take().is_none();
            let is_done = match operation {
                "unlink" => !there(b"file"),
                "rename" => !there(b"other"),
                _ => run(file_system.attributes(file)).unwrap().size == 0,
            };
            if !operation.starts_with("truncate") {
                assert_eq!(result.is_ok(), is_done, "{context}");
            }
            if !is_done {
                assert_eq!((result, free_now()), (Err(Error::Device), before), "{context}");
                act().unwrap();
            }
            let is_interrupted = free_now() != free;
            interrupted += u32::from(is_interrupted);
            if is_interrupted && interrupted % 2 == 0 {
                let new = create(&file_system, "new").unwrap();
                while run(file_system.append(new, &[1; 100_000], NOW)).is_ok() {}
                let length = run(file_system.attributes(new)).unwrap().size;
                assert!(length > (free - 16) * 1024, "{context}: a full disk has {length} bytes");
                run(file_system.unlink(ROOT, b"new", NOW)).unwrap();
            }
            run(file_system.checkpoint()).unwrap();
            assert_eq!(free_now(), free, "{context}");
            if operation == UNNAMED {
                run(file_system.release(file, NOW)).unwrap();
            }
            close(file_system, &device, &context);
            if !has_failed {
                break;
            }
        }
        assert!(interrupted >= 2, "{kind}, {operation}: interrupted {interrupted} times");
    }
}

/// A count of free blocks that cannot be: blocks are used and freed all the same.
#[test]
fn a_wrong_count_of_free_blocks_in_the_superblock() {
    let (_, size, options) = IMAGES[0];
    for count in [0, u64::MAX] {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let file = create(&file_system, "file").unwrap();
        run(file_system.write(file, 0, &[5; 100_000], NOW)).unwrap();
        run(file_system.close()).unwrap();
        let image = File::new(&device.bytes());
        let mut debugfs = tool("debugfs");
        let request = format!("set_super_value free_blocks_count {count}");
        debugfs.args(["-w", "-R", &request]).arg(&image.0);
        assert!(debugfs.output().unwrap().status.success());
        let device = Device::new(image.bytes());
        let file_system = open(&device);
        let found = run(file_system.statistics()).unwrap();
        assert_eq!(found.free_blocks, count.min(found.blocks));
        run(file_system.unlink(ROOT, b"file", NOW)).unwrap();
        let file = create(&file_system, "other").unwrap();
        run(file_system.write(file, 0, &[6; 200_000], NOW)).unwrap();
        run(file_system.truncate(file, 0, NOW)).unwrap();
        run(file_system.close()).unwrap();
        let image = File::new(&device.bytes());
        let repaired = tool("e2fsck").arg("-fy").arg(&image.0).output().unwrap();
        assert!(repaired.status.code() <= Some(1));
        let output = String::from_utf8_lossy(&repaired.stdout);
        assert_eq!(output.matches("wrong").count(), 1, "{output}");
        must_be_clean(&image.bytes(), "a wrong count");
    }
}

/// A second, independent reader: debugfs dumps the whole tree.
#[test]
fn debugfs_reads_the_same() {
    for (kind, size, options) in IMAGES {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let mut player = Player::new();
        let mut random = Random::new(7);
        for _ in 0..300 {
            let step = player.choose(&mut random, file_system.block_size());
            player.play(&file_system, &step, kind);
        }
        close(file_system, &device, kind);
        let file = File::new(&device.bytes());
        let folder = file.0.with_extension("dump");
        std::fs::create_dir_all(&folder).unwrap();
        let mut debugfs = tool("debugfs");
        debugfs.args(["-R", &format!("rdump / {}", folder.display())]).arg(&file.0);
        assert!(debugfs.output().unwrap().status.success());
        let mut pending = vec![(TOP, folder.clone())];
        while let Some((node, path)) = pending.pop() {
            match &player.model.nodes[&node] {
                Node::Directory { names, .. } => {
                    assert_eq!(std::fs::read_dir(&path).unwrap().count(), names.len(), "{kind}");
                    for (name, child) in names {
                        let name = String::from_utf8(name.clone()).unwrap();
                        pending.push((*child, path.join(name)));
                    }
                }
                Node::File { content, .. } => {
                    assert!(
                        std::fs::read(&path).unwrap() == *content,
                        "{kind}: {}",
                        path.display()
                    );
                }
                Node::Link { target, .. } => {
                    let found = std::fs::read_link(&path).unwrap();
                    assert_eq!(found.as_os_str().as_encoded_bytes(), target.as_slice());
                }
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// `e2fsck -D` makes hash indexes, as Linux does; debugfs allocates blocks without content.
#[test]
fn directories_with_an_index_and_unwritten_extents_are_read_and_changed() {
    for (kind, size, options) in [IMAGES[0], IMAGES[1]] {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let directory = run(file_system.create_directory(ROOT, b"directory", NEW)).unwrap().inode;
        let name = |count: u32| format!("a rather long name of a file {count}").into_bytes();
        for count in 0..600 {
            run(file_system.create(directory, &name(count), Kind::Regular, NEW)).unwrap();
        }
        let file = create(&file_system, "file").unwrap();
        run(file_system.write(file, 0, b"begin", NOW)).unwrap();
        run(file_system.close()).unwrap();
        let image = File::new(&device.bytes());
        assert!(
            tool("e2fsck").args(["-fyD"]).arg(&image.0).output().unwrap().status.code() <= Some(1)
        );
        let mut debugfs = tool("debugfs");
        debugfs.args(["-w", "-R", "fallocate file 1 60"]).arg(&image.0);
        assert!(debugfs.output().unwrap().status.success());
        let listed = tool("debugfs").args(["-R", "htree_dump directory"]).arg(&image.0).output();
        let listed = listed.unwrap().stdout;
        assert!(String::from_utf8_lossy(&listed).contains("Root node"), "{kind}: no index");
        let mut changes: BTreeMap<usize, u8> = BTreeMap::new();
        let device = Device::new(image.bytes());
        let file_system = open(&device);
        for count in 0..600 {
            run(file_system.lookup(directory, &name(count))).unwrap();
        }
        for count in 0..300 {
            run(file_system.unlink(directory, &name(count * 2), NOW)).unwrap();
            run(file_system.create(directory, &name(1000 + count), Kind::Regular, NEW)).unwrap();
        }
        let mut position = 0;
        let mut names = 0;
        loop {
            let some = run(file_system.read_directory(directory, position, 50)).unwrap();
            let Some(last) = some.last() else { break };
            position = last.next;
            names += some.len();
        }
        assert_eq!(names, 602, "{kind}");
        // The middle, the beginning and the end of the unwritten extent.
        let block = file_system.block_size();
        run(file_system.truncate(file, 60 * block as u64, NOW)).unwrap();
        for (index, value) in [(30, 1), (1, 2), (59, 3), (31, 4), (29, 5)] {
            run(file_system.write(file, (index * block + 7) as u64, &[value; 9], NOW)).unwrap();
            changes.insert(index, value);
        }
        let mut content = vec![0xEE; 60 * block];
        assert_eq!(run(file_system.read(file, 0, &mut content)), Ok(60 * block));
        let mut expected = vec![0; 60 * block];
        expected[..5].copy_from_slice(b"begin");
        for (index, value) in &changes {
            expected[index * block + 7..][..9].fill(*value);
        }
        assert!(content == expected, "{kind}");
        close(file_system, &device, kind);
    }
}

/// Without checksums, a leaf of an index without names looks like a node of the index. One change
/// of the directory must not write all of them: it would be too large for one transaction.
#[test]
fn a_directory_with_many_empty_leaves_is_changed() {
    const NAMES: usize = 1000;
    let options = "-b 1024 -J size=1 -N 2048 -O ^metadata_csum";
    let device = Device::new(image::make(8 << 20, options));
    let file_system = open(&device);
    let directory = run(file_system.create_directory(ROOT, b"directory", NEW)).unwrap().inode;
    // A block has room for three of them.
    let name = |count: usize| format!("{count:0>250}");
    for count in 0..NAMES {
        let name = name(count);
        run(file_system.create(directory, name.as_bytes(), Kind::Regular, NEW)).unwrap();
    }
    close(file_system, &device, "names");
    let image = File::new(&device.bytes());
    let indexed = tool("e2fsck").arg("-fyD").arg(&image.0).output().unwrap();
    assert!(indexed.status.code() <= Some(1));
    // The last name stays.
    let removed = (0..NAMES - 1).map(|count| format!("rm directory/{}\n", name(count)));
    debugfs(&image, &removed.collect::<String>());
    must_be_clean(&image.bytes(), "without names");
    let device = Device::new(image.bytes());
    let file_system = open(&device);
    run(file_system.create(directory, b"new", Kind::Regular, NEW)).unwrap();
    let listed = run(file_system.read_directory(directory, 0, 9)).unwrap();
    let listed: BTreeSet<_> = listed.into_iter().map(|entry| entry.name).collect();
    let expected = [".", "..", "new", &name(NAMES - 1)];
    assert_eq!(listed, expected.iter().map(|name| name.as_bytes().to_vec()).collect());
    close(file_system, &device, "a new name");
}

/// Files as ext3 and `chattr -e` leave them. Without the feature, debugfs makes such ones.
fn with_block_lists(size: usize, options: &str, commands: &str) -> File {
    let image = File::new(&image::make(size, options));
    let content = File::new(&[7; 30_000]);
    let commands = commands.replace("CONTENT", content.0.to_str().unwrap());
    debugfs(&image, &format!("feature -extent\n{commands}feature extent\n"));
    must_be_clean(&image.bytes(), "block lists");
    image
}

#[test]
fn the_last_name_of_a_file_of_block_lists_stays() {
    let expected = Error::Unsupported("a file of block lists instead of extents");
    for (kind, size, options) in IMAGES {
        // Of 60 bytes: the shortest target that is not in the inode.
        let long = "x".repeat(60);
        let image = with_block_lists(
            size,
            options,
            &format!("write CONTENT file\nsymlink link {long}\nsymlink short x\nmkdir directory\n"),
        );
        let device = Device::new(image.bytes());
        let file_system = open(&device);
        let inode = |name: &[u8]| run(file_system.lookup(ROOT, name)).map(|found| found.inode);
        let unlink = |name: &[u8]| run(file_system.unlink(ROOT, name, NOW));
        let rename =
            |from: &[u8], to: &[u8]| run(file_system.rename((ROOT, from), (ROOT, to), true, NOW));
        let file = inode(b"file").unwrap();
        let link = inode(b"link").unwrap();
        let new = create(&file_system, "new").unwrap();
        let free = run(file_system.statistics()).unwrap();
        assert_eq!(run(file_system.read(file, 0, &mut [0; 9])), Err(expected), "{kind}");
        assert_eq!(run(file_system.read_link(link)), Err(expected), "{kind}");
        let directory = run(file_system.remove_directory(ROOT, b"directory", NOW));
        assert_eq!(directory, Err(expected), "{kind}");
        for name in [&b"file"[..], b"link"] {
            assert_eq!(unlink(name), Err(expected), "{kind}");
            assert_eq!(rename(b"new", name), Err(expected), "{kind}");
        }
        // Other names can go.
        run(file_system.link(file, ROOT, b"second", NOW)).unwrap();
        unlink(b"file").unwrap();
        rename(b"second", b"third").unwrap();
        assert_eq!(unlink(b"third"), Err(expected), "{kind}");
        assert_eq!((inode(b"third"), inode(b"link")), (Ok(file), Ok(link)), "{kind}");
        assert_eq!(inode(b"new"), Ok(new), "{kind}");
        assert_eq!(run(file_system.statistics()).unwrap(), free, "{kind}");
        unlink(b"short").unwrap();
        close(file_system, &device, kind);
    }
}

#[test]
fn a_file_of_block_lists_that_linux_has_begun_to_delete_stays_in_the_list() {
    for (kind, size, options) in IMAGES {
        let device = Device::new(with_block_lists(size, options, "").bytes());
        let file_system = open(&device);
        let free = run(file_system.statistics()).unwrap();
        drop(file_system);
        let names = ["list 1", "list 2", "link", "cut"];
        let commands = names.map(|name| match name {
            "link" => format!("symlink link {}\n", "x".repeat(200)),
            name => format!("write CONTENT \"{name}\"\n"),
        });
        let image = with_block_lists(size, options, &commands.concat());
        let device = Device::new(image.bytes());
        let file_system = open(&device);
        for name in ["extents 1", "extents 2"] {
            let file = create(&file_system, name).unwrap();
            run(file_system.write(file, 0, &[5; 30_000], NOW)).unwrap();
        }
        let inode = |name: &str| run(file_system.lookup(ROOT, name.as_bytes())).unwrap().inode;
        // The file that is being truncated has its name.
        let order = ["list 1", "extents 1", "list 2", "cut", "extents 2", "link"];
        let list: Vec<u32> = order.iter().map(|name| inode(name)).collect();
        close(file_system, &device, kind);
        let image = File::new(&device.bytes());
        let mut commands = format!("set_super_value last_orphan {}\n", list[0]);
        for (at, (name, inode)) in order.iter().zip(&list).enumerate() {
            let next = list.get(at + 1).unwrap_or(&0);
            commands += &format!("set_inode_field <{inode}> dtime @{next}\n");
            if *name != "cut" {
                commands += &format!("unlink \"{name}\"\n");
                commands += &format!("set_inode_field <{inode}> links_count 0\n");
            }
        }
        debugfs(&image, &commands);
        let device = Device::new(image.bytes());
        for round in 0..2 {
            let file_system = open(&device);
            // Another one comes before them in the list, and leaves it.
            let new = New { hold: true, ..NEW };
            let file = run(file_system.create(ROOT, b"file", Kind::Regular, new)).unwrap().inode;
            run(file_system.unlink(ROOT, b"file", NOW)).unwrap();
            run(file_system.release(file, NOW)).unwrap();
            for (name, inode) in order.iter().zip(&list) {
                let is_gone = run(file_system.attributes(*inode)) == Err(Error::Stale);
                assert_eq!(is_gone, name.starts_with("extents"), "{kind}, {round}: {name}");
            }
            run(file_system.close()).unwrap();
        }
        let repaired = repaired(&device.bytes(), kind);
        must_be_clean(&repaired, kind);
        let file_system = open(&Device::new(repaired));
        let found = run(file_system.statistics()).unwrap();
        assert_eq!(found.free_inodes + 1, free.free_inodes, "{kind}");
        let cut = run(file_system.lookup(ROOT, b"cut")).unwrap();
        let block = u64::from(free.block_size);
        let blocks = cut.sectors * 512 / block;
        assert_eq!(found.free_blocks + blocks, free.free_blocks, "{kind}");
    }
}

/// What `chattr +i` and `chattr +a` forbid in Linux, and what they do not.
#[test]
fn immutable_and_append_only_inodes_keep_their_names_and_attributes() {
    let (kind, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let make = |parent, name: &str| {
        run(file_system.create(parent, name.as_bytes(), Kind::Regular, NEW)).unwrap().inode
    };
    let directory = |parent, name: &str| {
        run(file_system.create_directory(parent, name.as_bytes(), NEW)).unwrap().inode
    };
    let (fixed, growing) = (directory(ROOT, "fixed"), directory(ROOT, "growing"));
    for parent in [fixed, growing] {
        make(parent, "file");
        directory(parent, "directory");
    }
    for name in ["immutable", "append", "file"] {
        make(ROOT, name);
        directory(ROOT, &format!("{name} directory"));
    }
    close(file_system, &device, kind);
    let image = File::new(&device.bytes());
    let flags = [("immutable", 0x10), ("append", 0x20)];
    let mut commands = String::new();
    for (name, flag) in flags {
        for name in [name.to_string(), format!("{name} directory")] {
            commands += &format!("set_inode_field \"{name}\" flags {:#x}\n", 0x8_0000 | flag);
        }
    }
    commands += "set_inode_field fixed flags 0x80010\nset_inode_field growing flags 0x80020\n";
    debugfs(&image, &commands);
    must_be_clean(&image.bytes(), kind);
    let device = Device::new(image.bytes());
    let file_system = open(&device);
    let refused = Err(Error::NotPermitted);
    let inode = |parent, name: &str| {
        run(file_system.lookup(parent, name.as_bytes())).map(|found| found.inode)
    };
    let unlink = |parent, name: &str| run(file_system.unlink(parent, name.as_bytes(), NOW));
    let remove =
        |parent, name: &str| run(file_system.remove_directory(parent, name.as_bytes(), NOW));
    let link = |inode, parent, name: &str| {
        run(file_system.link(inode, parent, name.as_bytes(), NOW)).map(drop)
    };
    let rename = |from, name: &str, to, new: &str| {
        let (from, to) = ((from, name.as_bytes()), (to, new.as_bytes()));
        run(file_system.rename(from, to, true, NOW))
    };
    let create = |parent, name: &str| {
        run(file_system.create(parent, name.as_bytes(), Kind::Regular, NEW)).map(drop)
    };
    for (name, _) in flags {
        let folder = format!("{name} directory");
        assert_eq!(unlink(ROOT, name), refused, "{name}");
        assert_eq!(remove(ROOT, &folder), refused, "{name}");
        assert_eq!(link(inode(ROOT, name).unwrap(), ROOT, "second"), refused, "{name}");
        assert_eq!(rename(ROOT, name, ROOT, "new"), refused, "{name}");
        assert_eq!(rename(ROOT, "file", ROOT, name), refused, "{name}: replaced");
        assert_eq!(rename(ROOT, &folder, ROOT, "new"), refused, "{name}");
        assert_eq!(rename(ROOT, "file directory", ROOT, &folder), refused, "{name}: replaced");
        // Nothing is to be done.
        assert_eq!(rename(ROOT, name, ROOT, name), Ok(()), "{name}");
    }
    let file = inode(ROOT, "file").unwrap();
    for parent in [fixed, growing] {
        assert_eq!(unlink(parent, "file"), refused);
        assert_eq!(remove(parent, "directory"), refused);
        assert_eq!(rename(parent, "file", parent, "new"), refused);
        assert_eq!(rename(parent, "file", ROOT, "new"), refused);
        assert_eq!(rename(ROOT, "file", parent, "file"), refused);
        assert_eq!(create(parent, "file"), Err(Error::Exists));
        assert_eq!(unlink(parent, "absent"), Err(Error::NotFound));
    }
    // An append-only directory gets names.
    let made = |result: Result<(), Error>| [refused, result];
    let both = |act: &dyn Fn(u32) -> Result<(), Error>| [act(fixed), act(growing)];
    assert_eq!(both(&|parent| create(parent, "created")), made(Ok(())));
    assert_eq!(both(&|parent| link(file, parent, "linked")), made(Ok(())));
    let folder = |parent| run(file_system.create_directory(parent, b"made", NEW)).map(drop);
    assert_eq!(both(&folder), made(Ok(())));
    let symlink = |parent| run(file_system.create_link(parent, b"link", b"x", NEW)).map(drop);
    assert_eq!(both(&symlink), made(Ok(())));
    assert_eq!(both(&|parent| rename(ROOT, "file", parent, "renamed")), made(Ok(())));
    assert_eq!(both(&|parent| rename(ROOT, "file directory", parent, "moved")), made(Ok(())));
    // Attributes: only what `touch` does to those that are append-only.
    let set = |name: &str, set: SetAttributes| {
        run(file_system.set_attributes(inode(ROOT, name).unwrap(), set, NOW)).map(drop)
    };
    let none = SetAttributes::default();
    for name in ["immutable", "append", "append directory", "immutable directory"] {
        let permissions = SetAttributes { permissions: Some(0o777), ..none };
        assert_eq!(set(name, permissions), refused, "{name}");
        assert_eq!(set(name, SetAttributes { owner: Some((1, 1)), ..none }), refused, "{name}");
        let earlier = SetAttributes { modified: Some(at(5)), ..none };
        assert_eq!(set(name, earlier), refused, "{name}");
        let touched = SetAttributes { accessed: Some(NOW), modified: Some(NOW), ..none };
        let expected = if name.starts_with("append") { Ok(()) } else { refused };
        assert_eq!(set(name, touched), expected, "{name}");
    }
    close(file_system, &device, kind);
}

/// Memory: much more is changed and read than the cache holds.
#[test]
fn memory_has_a_bound() {
    let device = Device::new(image::make(48 << 20, "-b 1024 -J size=4"));
    let file_system = open(&device);
    let file = create(&file_system, "file").unwrap();
    let data = vec![1; 100_000];
    let mut most = 0;
    for round in 0..250 {
        run(file_system.write(file, round * 100_000, &data, NOW)).unwrap();
        create(&file_system, &format!("another {round}")).unwrap();
        most = most.max(run(file_system.blocks_in_memory()));
    }
    let mut content = vec![0; 1 << 20];
    for part in 0..23 {
        assert_eq!(run(file_system.read(file, part << 20, &mut content)), Ok(1 << 20));
        most = most.max(run(file_system.blocks_in_memory()));
    }
    assert!(most > SMALLEST_CACHE / 2, "{most}: the test does not fill the cache");
    assert!(most <= SMALLEST_CACHE * 7 / 4 + 256 + 64, "{most}");
    close(file_system, &device, "memory");
}

/// The extents of a hostile image can repeat the same blocks up to 2^32 times.
#[test]
fn a_directory_that_is_longer_than_the_disk_is_not_searched() {
    for (kind, size, options) in IMAGES {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let directory = run(file_system.create_directory(ROOT, b"directory", NEW)).unwrap().inode;
        let longer = size + file_system.block_size();
        run(file_system.close()).unwrap();
        let image = File::new(&device.bytes());
        let mut debugfs = tool("debugfs");
        debugfs.args(["-w", "-R", &format!("set_inode_field directory size {longer}")]);
        assert!(debugfs.arg(&image.0).output().unwrap().status.success());
        let file_system = open(&Device::new(image.bytes()));
        let expected = Some(Error::Corrupt("size of a directory"));
        assert_eq!(run(file_system.lookup(directory, b"name")).err(), expected, "{kind}");
        assert_eq!(run(file_system.read_directory(directory, 0, 9)).err(), expected, "{kind}");
        assert_eq!(run(file_system.remove_directory(ROOT, b"directory", NOW)).err(), expected);
    }
}

/// Mutated images: errors, but no panic and no endless loop.
#[test]
fn mutated_images_do_no_harm() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let work = std::thread::spawn(move || {
        for (kind, size, options) in [IMAGES[2], IMAGES[3], IMAGES[0]] {
            let device = Device::new(image::make(size, options));
            let file_system = open(&device);
            let mut player = Player::new();
            let mut random = Random::new(3);
            for _ in 0..200 {
                let step = player.choose(&mut random, file_system.block_size());
                player.play(&file_system, &step, kind);
            }
            run(file_system.sync()).unwrap();
            let crashed = device.bytes();
            run(file_system.close()).unwrap();
            let closed = device.bytes();
            must_contain(&open(&device), &player.model, kind);
            for seed in 0..rounds(150) {
                let mut random = Random::new(seed);
                let mut bytes = if seed % 3 == 0 { crashed.clone() } else { closed.clone() };
                mutate(&mut bytes, &mut random);
                try_all(Device::new(bytes), &player, &mut random);
            }
        }
        sender.send(()).unwrap();
    });
    let ended = receiver.recv_timeout(std::time::Duration::from_secs(600));
    assert!(ended.is_ok() || work.is_finished(), "a mutated image makes a loop without end");
    work.join().unwrap();
}

/// Changes some numbers in blocks that are not empty, the first ones of the disk most often.
fn mutate(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..1 + random.below(12) {
        let range = if random.below(3) == 0 { bytes.len() } else { bytes.len() / 8 };
        let block = random.below(range as u64 / 512) as usize * 512;
        let used = bytes[block..block + 512].iter().any(|byte| *byte != 0);
        if !used && random.below(40) > 0 {
            continue;
        }
        let at = block + random.below(512) as usize;
        bytes[at] = match random.below(4) {
            0 => 0xFF,
            1 => 0,
            2 => bytes[at] ^ 1 << random.below(8),
            _ => random.next() as u8,
        };
    }
}

fn try_all(device: Device, player: &Player, random: &mut Random) {
    let Ok(file_system) = run(Ext4::open(device, SMALLEST_CACHE, NOW)) else { return };
    let mut player =
        Player { model: player.model.clone(), inodes: player.inodes.clone(), ..Player::new() };
    let steps = 60;
    for _ in 0..steps {
        let step = player.choose(random, file_system.block_size());
        if let (Step::Write(..) | Step::Truncate(..), true) = (&step, random.below(2) == 0) {
            continue;
        }
        let _ = player.apply(&file_system, &step);
    }
    for inode in 0..80 {
        let _ = run(file_system.read_directory(inode, 0, 1000));
        let _ = run(file_system.read(inode, random.below(1 << 33), &mut [0; 5000]));
        let _ = run(file_system.read_link(inode));
    }
    let _ = run(file_system.close());
}

/// Whether every future may be polled by any worker.
#[test]
fn futures_can_be_sent() {
    fn sent(_: impl Send) {}
    let device = Device::new(image::make(IMAGES[0].1, IMAGES[0].2));
    let file_system = open(&device);
    sent(Ext4::open(device.clone(), SMALLEST_CACHE, NOW));
    sent(file_system.lookup(ROOT, b"x"));
    sent(file_system.create(ROOT, b"x", Kind::Regular, NEW));
    sent(file_system.create_link(ROOT, b"x", b"y", NEW));
    sent(file_system.rename((ROOT, b"x"), (ROOT, b"y"), true, NOW));
    sent(file_system.unlink(ROOT, b"x", NOW));
    sent(file_system.write(ROOT, 0, b"x", NOW));
    sent(file_system.truncate(ROOT, 0, NOW));
    sent(file_system.read_directory(ROOT, 0, 1));
    sent(file_system.release(ROOT, NOW));
    sent(file_system.sync());
    assert!(read_all(&file_system).is_ok());
    sent(file_system.close());
}

/// What [`Ext4::places`] says is what a read returns, as soon as it says so.
#[test]
fn places_have_what_a_read_returns() {
    const LENGTH: usize = 300_001;
    for (kind, size, options) in IMAGES {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let block = file_system.block_size();
        let file = create(&file_system, "file").unwrap();
        let mut data: Vec<u8> = (0..LENGTH).map(|at| (at % 253) as u8).collect();
        assert_eq!(run(file_system.write(file, 0, &data, NOW)), Ok(LENGTH));
        let places =
            |at: usize, length, most| run(file_system.places(file, at as u64, length, most));
        assert_eq!(places(0, LENGTH, 100), Ok(None), "{kind}: before it is written");
        run(file_system.sync()).unwrap();
        let check = |data: &[u8], at: usize, length: usize| {
            let places = places(at, length, 100).unwrap().expect("places");
            let bytes = device.bytes();
            let parts = places.iter().map(|&(at, count)| &bytes[at as usize..][..count as usize]);
            let end = data.len().min(at + length);
            assert!(parts.collect::<Vec<_>>().concat() == data[at..end], "{kind}: at {at}");
        };
        check(&data, 0, LENGTH);
        check(&data, 16 * block, 8 * block);
        check(&data, 16 * block, 10 * LENGTH);
        assert_eq!(places(LENGTH + block, block, 100), Ok(None), "{kind}: behind the end");
        // A block that was written again, in the middle of others.
        data[20 * block..21 * block].fill(7);
        let new = vec![7; block];
        assert_eq!(run(file_system.write(file, 20 * block as u64, &new, NOW)), Ok(block));
        assert_eq!(places(16 * block, 8 * block, 100), Ok(None), "{kind}: written again");
        check(&data, 0, 20 * block);
        check(&data, 21 * block, block);
        run(file_system.sync()).unwrap();
        check(&data, 0, LENGTH);
        // Holes have no place, and neither have more parts than are allowed.
        let sparse = create(&file_system, "sparse").unwrap();
        let at = 8 * block as u64;
        assert_eq!(run(file_system.write(sparse, at, &new, NOW)), Ok(block));
        run(file_system.sync()).unwrap();
        assert_eq!(run(file_system.places(sparse, 0, 9 * block, 100)), Ok(None), "{kind}: a hole");
        assert!(run(file_system.places(sparse, at, block, 1)).unwrap().is_some(), "{kind}");
        assert_eq!(run(file_system.places(sparse, at, block, 0)), Ok(None), "{kind}: no room");
        assert_eq!(run(file_system.places(ROOT, 0, block, 1)), Err(Error::IsDirectory));
        close(file_system, &device, kind);
    }
}

/// While a commit writes data to their place, a read of that place could find what was there
/// before.
#[test]
fn data_that_are_being_written_have_no_place() {
    let (kind, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let file = create(&file_system, "file").unwrap();
    let data = vec![1; 4 * file_system.block_size()];
    run(file_system.write(file, 0, &data, NOW)).unwrap();
    run(file_system.sync()).unwrap();
    assert!(run(file_system.places(file, 0, data.len(), 1)).unwrap().is_some(), "{kind}");
    run(file_system.write(file, 0, &data, NOW)).unwrap();
    // The commit has begun, and its future is dropped: what it had in flight stays so.
    device.0.lock().unwrap().slow = Some(Random::new(1));
    assert!(!common::poll_once(file_system.sync()), "{kind}: the commit has ended");
    assert_eq!(run(file_system.places(file, 0, data.len(), 1)), Ok(None), "{kind}");
    run(file_system.sync()).unwrap();
    assert!(run(file_system.places(file, 0, data.len(), 1)).unwrap().is_some(), "{kind}");
    close(file_system, &device, kind);
}

/// A write that the kernel keeps on the strength of this number must not need space: neither
/// leaves of the tree nor blocks without content count.
#[test]
fn solid_bytes_end_at_the_first_hole_or_unwritten_extent() {
    for (kind, size, options) in IMAGES {
        let device = Device::new(image::make(size, options));
        let file_system = open(&device);
        let block = file_system.block_size() as u64;
        let data = vec![7; block as usize];
        let write = |file, index: u64| {
            let written = run(file_system.write(file, index * block, &data, NOW));
            assert_eq!(written, Ok(data.len()), "{kind}: block {index}");
        };
        let solid = |file| run(file_system.solid(file));
        // Every second block, so that the tree has a leaf of its own; then all but block 5.
        let file = create(&file_system, "file").unwrap();
        assert_eq!(solid(file), Ok(0), "{kind}: empty");
        for index in (0..12).step_by(2).chain([1, 3, 7, 9]) {
            write(file, index);
        }
        run(file_system.truncate(file, 11 * block - 3, NOW)).unwrap();
        let attributes = run(file_system.attributes(file)).unwrap();
        assert!(attributes.sectors * 512 >= attributes.size, "{kind}: the tree has no leaf");
        assert_eq!(solid(file), Ok(5 * block), "{kind}: a hole");
        write(file, 5);
        assert_eq!(solid(file), Ok(11 * block - 3), "{kind}: all blocks");
        run(file_system.truncate(file, 20 * block, NOW)).unwrap();
        assert_eq!(solid(file), Ok(11 * block), "{kind}: longer");
        // Every second block first: each block is an extent, and they fill several leaves.
        let long = create(&file_system, "long").unwrap();
        for index in (1..600).step_by(2).chain((0..600).step_by(2)) {
            write(long, index);
        }
        let attributes = run(file_system.attributes(long)).unwrap();
        let leaves = attributes.sectors * 512 / block - 600;
        assert!(leaves >= 2, "{kind}: {leaves} nodes of the tree");
        assert_eq!(solid(long), Ok(600 * block), "{kind}: {leaves} leaves");
        // Blocks without content, and a file that must not be changed.
        for name in ["unwritten", "protected"] {
            write(create(&file_system, name).unwrap(), 0);
        }
        assert_eq!(run(file_system.solid(ROOT)), Err(Error::IsDirectory), "{kind}");
        close(file_system, &device, kind);
        let image = File::new(&device.bytes());
        for command in ["fallocate unwritten 1 9", "set_inode_field protected flags 0x80010"] {
            let mut debugfs = tool("debugfs");
            debugfs.args(["-w", "-R", command]).arg(&image.0);
            assert!(debugfs.output().unwrap().status.success());
        }
        let device = Device::new(image.bytes());
        let file_system = open(&device);
        let file = run(file_system.lookup(ROOT, b"unwritten")).unwrap().inode;
        run(file_system.truncate(file, 8 * block, NOW)).unwrap();
        assert_eq!(run(file_system.solid(file)), Ok(block), "{kind}: unwritten");
        run(file_system.write(file, block, &data, NOW)).unwrap();
        assert_eq!(run(file_system.solid(file)), Ok(2 * block), "{kind}: written");
        let file = run(file_system.lookup(ROOT, b"protected")).unwrap().inode;
        assert_eq!(run(file_system.solid(file)), Ok(0), "{kind}: protected");
    }
}

/// Files that are deleted while they are open are in a list that has one direction. The oldest is
/// the last of it, and is not searched for from its beginning.
#[test]
fn a_deletion_does_not_search_those_that_came_later() {
    const FILES: usize = 1500;
    // An inode is a block, so that the list does not fit into the cache.
    let options = "-b 1024 -I 1024 -N 2048 -J size=1";
    let device = Device::new(image::make(16 << 20, options));
    let file_system = open(&device);
    let new = New { hold: true, ..NEW };
    let mut files = Vec::new();
    for count in 0..FILES {
        let name = format!("{count}");
        let made = run(file_system.create(ROOT, name.as_bytes(), Kind::Regular, new));
        files.push(made.unwrap().inode);
        run(file_system.unlink(ROOT, name.as_bytes(), NOW)).unwrap();
    }
    run(file_system.sync()).unwrap();
    let crash = device.bytes();
    let mut random = Random::new(1);
    let reads = || device.0.lock().unwrap().reads;
    let before = reads();
    for count in 0..FILES {
        // The oldest, or any.
        let index = if count % 2 == 0 { 0 } else { random.below(files.len() as u64) as usize };
        run(file_system.release(files.remove(index), NOW)).unwrap();
    }
    let reads = reads() - before;
    assert!(reads < 10 * FILES as u64, "{reads} reads for {FILES} deletions");
    close(file_system, &device, "deletions");
    // The list is one that others can read.
    must_be_clean(&repaired(&crash, "a crash"), "a crash");
}

/// A name of an image without checksums may lead to an inode of the system: the journal is not read
/// or written as a file, and not deleted.
#[test]
fn names_of_the_systems_inodes_are_refused() {
    for (kind, size, options) in [IMAGES[2], IMAGES[3]] {
        for inode in [1, 7, 8, 10] {
            let device = Device::new(image::make(size, options));
            let file_system = open(&device);
            create(&file_system, "a name that is found").unwrap();
            run(file_system.close()).unwrap();
            let mut bytes = device.bytes();
            let name = b"a name that is found";
            // In the directory, and in the journal.
            for at in 0..bytes.len() - name.len() {
                if bytes[at] == name[0] && bytes[at..].starts_with(name) {
                    bytes[at - 8..at - 4].copy_from_slice(&u32::to_le_bytes(inode));
                }
            }
            let file_system = open(&Device::new(bytes));
            let wrong = Some(Error::Corrupt("inode of a directory entry"));
            assert_eq!(run(file_system.lookup(ROOT, name)).err(), wrong, "{kind}: {inode}");
            assert_eq!(run(file_system.unlink(ROOT, name, NOW)).err(), wrong, "{kind}: {inode}");
            let renamed = run(file_system.rename((ROOT, name), (ROOT, b"new"), true, NOW));
            assert_eq!(renamed.err(), wrong, "{kind}: {inode}");
            assert!(run(file_system.lookup(ROOT, b"lost+found")).is_ok(), "{kind}");
            assert_eq!(run(file_system.lookup(ROOT, b"..")).map(|found| found.inode), Ok(ROOT));
        }
    }
}

/// A bitmap without a checksum may say that blocks of the journal are free: its log, or a node of
/// its extent tree.
#[test]
fn blocks_of_the_journal_are_not_allocated() {
    // Short groups, so that the journal has more extents than its inode has room for.
    let options = "-b 1024 -g 512 -J size=4 -O ^metadata_csum,^flex_bg,^resize_inode";
    let image = File::new(&image::make(12 << 20, options));
    let stat = tool("debugfs").args(["-R", "stat <8>"]).arg(&image.0).output().unwrap();
    let stat = String::from_utf8(stat.stdout).unwrap();
    let block = |before: &str| -> u64 {
        let (_, rest) = stat.split_once(before).expect("an extent");
        let (_, rest) = rest.split_once("):").unwrap();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    for block in [block("(ETB0"), block("(0-"), block("(0-") + 20] {
        let image = File::new(&image.bytes());
        let group = (block - 1) / 512;
        for command in
            [format!("freeb {block} 1"), format!("set_block_group {group} free_blocks_count 1")]
        {
            let mut debugfs = tool("debugfs");
            debugfs.args(["-w", "-R", &command]).arg(&image.0);
            assert!(debugfs.output().unwrap().status.success());
        }
        let file_system = open(&Device::new(image.bytes()));
        let file = create(&file_system, "file").unwrap();
        let mut position = 0;
        let error = loop {
            match run(file_system.write(file, position, &[7; 1024], NOW)) {
                Ok(count) => position += count as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::Corrupt("block bitmap"), "{block} of\n{stat}");
    }
}
