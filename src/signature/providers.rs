#![doc = include_str!("../guide/providers.md")]
