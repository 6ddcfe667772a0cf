//! The journal as bytes on the disk.

mod common;

use common::device::Device;
use common::image::{self, IMAGES, must_be_clean, repaired};
use common::{at, rounds, run};
use cops_ext4::{BlockDevice, Ext4, Kind, New, ROOT, SMALLEST_CACHE};

const NEW: New = New { permissions: 0o600, user: 0, group: 0, now: at(1_700_000_000), hold: false };

fn open(device: Device) -> Ext4<Device> {
    run(Ext4::open(device, SMALLEST_CACHE, at(1_700_000_000))).unwrap()
}

/// The bytes in front of the superblock look like a commit record of a transaction to come. A copy
/// of them in the log would be taken for it.
#[test]
fn a_block_that_looks_like_one_of_the_journal_is_escaped() {
    const RECORD: [u8; 12] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2, 0x77, 0x77, 0x77, 0x77];
    for (name, size, options) in IMAGES.into_iter().filter(|image| !image.2.contains("-b 1024")) {
        let mut image = image::make(size, options);
        image[..12].copy_from_slice(&RECORD);
        let device = Device::new(image);
        let file_system = open(device.clone());
        run(file_system.create(ROOT, b"file", Kind::Regular, NEW)).unwrap();
        run(file_system.sync()).unwrap();
        // A crash: the replay has to undo the escape.
        drop(file_system);
        let bytes = device.bytes();
        let copies = bytes.chunks(1024).filter(|part| part[..12] == RECORD).count();
        assert_eq!(copies, 1, "{name}: blocks of the disk that look like a record");
        assert_eq!(repaired(&bytes, name)[..12], RECORD, "{name}: after e2fsck");
        let device = Device::new(bytes);
        run(open(device.clone()).close()).unwrap();
        assert_eq!(device.bytes()[..12], RECORD, "{name}: after our replay");
    }
}

/// The log wraps around many times, and every file that was synced is there.
#[test]
fn a_full_journal_continues_at_its_beginning() {
    let (name, size, options) = IMAGES[1];
    let device = Device::new(image::make(size, options));
    let file_system = open(device.clone());
    for count in 0..400 {
        let name = format!("file {count}");
        run(file_system.create(ROOT, name.as_bytes(), Kind::Regular, NEW)).unwrap();
        run(file_system.sync()).unwrap();
    }
    drop(file_system);
    let file_system = open(device.clone());
    for count in 0..400 {
        run(file_system.lookup(ROOT, format!("file {count}").as_bytes())).unwrap();
    }
    run(file_system.close()).unwrap();
    must_be_clean(&device.bytes(), name);
}

/// A device that fails once: the operation or the sync fails, and the next sync has everything.
#[test]
fn a_failed_commit_is_repeated() {
    for (name, size, options) in IMAGES {
        let image = image::make(size, options);
        for failure in 0..rounds(12) {
            let device = Device::new(image.clone());
            let file_system = open(device.clone());
            let file = run(file_system.create(ROOT, b"file", Kind::Regular, NEW)).unwrap();
            run(file_system.write(file.inode, 0, &[7; 5000], NEW.now)).unwrap();
            device.0.lock().unwrap().fail_after = Some(failure % 6);
            let mut failures = u32::from(run(file_system.sync()).is_err());
            // Something else changes, some of it is gone again.
            failures +=
                u32::from(run(file_system.write(file.inode, 3000, &[8; 9000], NEW.now)).is_err());
            failures +=
                u32::from(run(file_system.create(ROOT, b"other", Kind::Regular, NEW)).is_err());
            if failure % 3 == 0 {
                failures += u32::from(run(file_system.truncate(file.inode, 100, NEW.now)).is_err());
            }
            failures += u32::from(run(file_system.sync()).is_err());
            assert!(failures <= 1, "{name}");
            run(file_system.sync()).unwrap();
            let size = run(file_system.attributes(file.inode)).unwrap().size;
            drop(file_system);
            let context = format!("{name}, failure at request {failure}");
            must_be_clean(&repaired(&device.bytes(), &context), &context);
            let file_system = open(device.clone());
            let found = run(file_system.lookup(ROOT, b"file")).unwrap();
            assert_eq!(found.size, size, "{context}");
            let mut content = vec![0; size as usize];
            assert_eq!(run(file_system.read(found.inode, 0, &mut content)), Ok(content.len()));
            assert!(content.iter().all(|byte| matches!(byte, 7 | 8)), "{context}");
        }
    }
}

/// What a commit writes, in requests: data and log together, a record, two flushes.
#[test]
fn a_sync_has_two_flushes_and_one_without_changes_has_none() {
    let (_, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(device.clone());
    let before = device.0.lock().unwrap().flushes;
    run(file_system.create(ROOT, b"file", Kind::Regular, NEW)).unwrap();
    assert_eq!(device.0.lock().unwrap().flushes, before);
    run(file_system.sync()).unwrap();
    assert_eq!(device.0.lock().unwrap().flushes, before + 2);
    run(file_system.sync()).unwrap();
    assert_eq!(device.0.lock().unwrap().flushes, before + 2);
    assert!(device.size() > 0);
}

/// A write at the time of the last one, of a block that the file has, changes nothing but data: one
/// request and one flush make it durable.
#[test]
fn a_write_at_the_same_time_needs_no_journal() {
    let (name, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(device.clone());
    let now = at(1_700_000_100);
    let file = run(file_system.create(ROOT, b"file", Kind::Regular, NEW)).unwrap().inode;
    run(file_system.write(file, 0, &[1; 100], now)).unwrap();
    run(file_system.sync()).unwrap();
    let requests = || {
        let disk = device.0.lock().unwrap();
        (disk.writes, disk.flushes)
    };
    let before = requests();
    run(file_system.write(file, 50, &[2; 50], now)).unwrap();
    run(file_system.sync()).unwrap();
    assert_eq!(requests(), (before.0 + 1, before.1 + 1), "at the same time");
    run(file_system.write(file, 50, &[3; 50], at(1_700_000_101))).unwrap();
    run(file_system.sync()).unwrap();
    let (writes, flushes) = requests();
    assert!(writes > before.0 + 2 && flushes == before.1 + 3, "later: {writes}, {flushes}");
    let mut bytes = [0; 100];
    assert_eq!(run(file_system.read(file, 0, &mut bytes)).unwrap(), 100);
    assert_eq!((&bytes[..50], &bytes[50..]), (&[1; 50][..], &[3; 50][..]));
    run(file_system.close()).unwrap();
    must_be_clean(&device.bytes(), name);
}
