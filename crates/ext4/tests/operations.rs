//! Random operations against the model, and the judgement of `e2fsck`.

mod common;

use common::device::Device;
use common::image::{self, IMAGES, must_be_clean};
use common::model::must_contain;
use common::script::Player;
use common::{Random, at, rounds, run};
use cops_ext4::{Ext4, SMALLEST_CACHE};

pub fn open(device: Device) -> Ext4<Device> {
    run(Ext4::open(device, SMALLEST_CACHE, at(1_700_000_000))).unwrap()
}

#[test]
fn random_operations_do_what_the_model_does() {
    for (name, size, options) in IMAGES {
        let image = image::make(size, options);
        for seed in 0..rounds(3) {
            let context = format!("{name}, seed {seed}");
            let mut random = Random::new(seed);
            let device = Device::new(image.clone());
            let mut file_system = open(device.clone());
            let mut player = Player::new();
            for count in 0..400 {
                let step = player.choose(&mut random, file_system.block_size());
                player.play(&file_system, &step, &context);
                match random.below(60) {
                    0 => run(file_system.sync()).unwrap(),
                    1 => run(file_system.checkpoint()).unwrap(),
                    _ => {}
                }
                if count % 150 == 149 {
                    must_contain(&file_system, &player.model, &context);
                    // Everything comes from the disk again.
                    run(file_system.close()).unwrap();
                    must_be_clean(&device.bytes(), &context);
                    file_system = open(device.clone());
                }
            }
            must_contain(&file_system, &player.model, &context);
            run(file_system.close()).unwrap();
            must_be_clean(&device.bytes(), &context);
        }
    }
}
