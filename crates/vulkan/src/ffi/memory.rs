//! Buffers: memory of the device, or memory that the host sees too, each with an allocation of its own.

use super::device::Device;
use super::failed;
use crate::error::VulkanError;
use ash::vk;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Kernels compute with it.
    Compute,
    /// The host writes it, kernels read it.
    Upload,
    /// Kernels write it, the host reads it.
    Readback,
}

/// Where buffers inside a buffer may begin.
pub(crate) const ALIGNMENT: u64 = 256;
/// What is staged at once.
const STAGE_BYTES: u64 = 16 << 20;

/// Bytes that are read past caches sooner than they are copied.
const FEW_BYTES: usize = 1 << 10;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A range of a buffer that a kernel sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(super) buffer: vk::Buffer,
    id: u64,
    pub(super) offset: u64,
    pub(super) range: u64,
}

/// Memory with a handle.
pub(crate) struct Buffer {
    device: Arc<Device>,
    pub(super) buffer: vk::Buffer,
    id: u64,
    memory: vk::DeviceMemory,
    pub(crate) bytes: u64,
    /// Where the host sees it.
    mapped: Option<NonNull<u8>>,
    /// Whether the host's caches have what it reads there: across a bus and past them, a row of scores takes longer than a token.
    is_cached: bool,
}

// SAFETY: the pointer is to memory that the buffer owns and keeps mapped; it is read and written through `&self` by copies, beside
// which no kernel uses the same bytes: `read` and `write` wait for all that runs, others say so of themselves.
unsafe impl Send for Buffer {}
// SAFETY: as above; two writers at once are kept apart by the locks of whoever owns the buffer.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory of so many bytes, which hold anything.
    pub(crate) fn new(
        device: &Arc<Device>,
        bytes: u64,
        purpose: Purpose,
        what: &'static str,
    ) -> Result<Buffer, VulkanError> {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST
            | vk::BufferUsageFlags::INDIRECT_BUFFER;
        let create = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        let raw = &device.device;
        // SAFETY: the buffer and its memory are this value's own; where a later step fails, what is there is destroyed first.
        unsafe {
            let buffer = raw.create_buffer(&create, None).map_err(failed("vkCreateBuffer"))?;
            let needs = raw.get_buffer_memory_requirements(buffer);
            let mut memory = None;
            for index in types(&device.adapter.memory, needs.memory_type_bits, purpose) {
                let allocate =
                    vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
                if let Ok(allocated) = raw.allocate_memory(&allocate, None) {
                    memory = Some((allocated, index));
                    break;
                }
            }
            let Some((memory, index)) = memory else {
                raw.destroy_buffer(buffer, None);
                return Err(VulkanError::Memory { what, bytes });
            };
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut made =
                Buffer { device: device.clone(), buffer, id, memory, bytes, mapped: None, is_cached: false };
            raw.bind_buffer_memory(buffer, memory, 0).map_err(failed("vkBindBufferMemory"))?;
            let flags = device.adapter.memory.memory_types[index as usize].property_flags;
            let seen = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            // What is for reading has been made as good for that as the device has it.
            made.is_cached =
                flags.contains(vk::MemoryPropertyFlags::HOST_CACHED) || matches!(purpose, Purpose::Readback);
            if flags.contains(seen) {
                let pointer = raw
                    .map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
                    .map_err(failed("vkMapMemory"))?;
                made.mapped = NonNull::new(pointer.cast());
            }
            Ok(made)
        }
    }

    /// Tells buffers apart, also from those that are gone: a driver gives handles out again.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// A range of it for a kernel.
    pub(crate) fn binding(&self, offset: u64, range: u64) -> Binding {
        Binding { buffer: self.buffer, id: self.id, offset, range }
    }

    /// Whether a range lies inside.
    fn holds(&self, offset: u64, bytes: usize) -> bool {
        offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes)
    }

    /// Writes bytes, behind all that runs.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), VulkanError> {
        if self.mapped.is_some() {
            self.device.settle();
        }
        self.write_landed(offset, bytes)
    }

    /// Writes bytes that nothing which runs uses.
    pub(crate) fn write_landed(&self, offset: u64, bytes: &[u8]) -> Result<(), VulkanError> {
        if !self.holds(offset, bytes.len()) {
            return Err(VulkanError::Memory { what: "a write", bytes: bytes.len() as u64 });
        }
        if let Some(pointer) = self.mapped {
            // SAFETY: the range lies inside the mapped memory, which coherence makes visible at the next submission; the source is a
            // slice of ours and does not overlap it.
            unsafe {
                let target = pointer.as_ptr().add(offset as usize);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            }
            return Ok(());
        }
        let stage =
            Buffer::new(&self.device, STAGE_BYTES.min(bytes.len() as u64), Purpose::Upload, "staging")?;
        let mut at = offset;
        for part in bytes.chunks(STAGE_BYTES as usize) {
            stage.write_landed(0, part)?;
            stage.copy_to(0, self, at, part.len() as u64)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Reads bytes, behind all that runs.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), VulkanError> {
        if self.mapped.is_some() {
            self.device.settle();
        }
        self.read_landed(offset, bytes)
    }

    /// Whether the host reads so many bytes where they are.
    pub(crate) fn is_read_in_place(&self, bytes: usize) -> bool {
        self.mapped.is_some() && (self.is_cached || bytes <= FEW_BYTES)
    }

    /// The device that it is of.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Reads bytes that nothing which runs writes.
    pub(crate) fn read_landed(&self, offset: u64, bytes: &mut [u8]) -> Result<(), VulkanError> {
        if !self.holds(offset, bytes.len()) {
            return Err(VulkanError::Memory { what: "a read", bytes: bytes.len() as u64 });
        }
        if let Some(pointer) = self.mapped.filter(|_| self.is_read_in_place(bytes.len())) {
            // SAFETY: the range lies inside the mapped memory, and what kernels wrote there was waited for.
            unsafe {
                let source = pointer.as_ptr().add(offset as usize);
                std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len());
            }
            return Ok(());
        }
        let stage =
            Buffer::new(&self.device, STAGE_BYTES.min(bytes.len() as u64), Purpose::Readback, "staging")?;
        let mut at = offset;
        for part in bytes.chunks_mut(STAGE_BYTES as usize) {
            self.copy_to(at, &stage, 0, part.len() as u64)?;
            stage.read_landed(0, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes on the device.
    pub(crate) fn copy_to(&self, from: u64, target: &Buffer, to: u64, bytes: u64) -> Result<(), VulkanError> {
        self.copy_parts(target, &[(from, to, bytes)])
    }

    /// The same, several parts at once: by part where it is, where it goes, and its bytes.
    pub(crate) fn copy_parts(&self, target: &Buffer, parts: &[(u64, u64, u64)]) -> Result<(), VulkanError> {
        let fits = |&(from, to, bytes): &(u64, u64, u64)| {
            self.holds(from, bytes as usize) && target.holds(to, bytes as usize)
        };
        if !parts.iter().all(fits) {
            return Err(VulkanError::Memory { what: "a copy", bytes: target.bytes });
        }
        let regions: Vec<vk::BufferCopy> = parts
            .iter()
            .filter(|(_, _, bytes)| *bytes > 0)
            .map(|&(from, to, bytes)| vk::BufferCopy::default().src_offset(from).dst_offset(to).size(bytes))
            .collect();
        if regions.is_empty() {
            return Ok(());
        }
        self.device.once(|device, commands| {
            // SAFETY: the ranges lie inside both buffers, which outlive the commands: those are waited for.
            unsafe { device.cmd_copy_buffer(commands, self.buffer, target.buffer, &regions) };
        })
    }

    /// Zeroes a range of whole words.
    pub(crate) fn clear(&self, offset: u64, bytes: u64) -> Result<(), VulkanError> {
        let bytes = bytes.next_multiple_of(4);
        if bytes == 0 || !self.holds(offset, bytes as usize) {
            return Ok(());
        }
        self.device.once(|device, commands| {
            // SAFETY: the range lies inside the buffer, which outlives the commands: those are waited for.
            unsafe { device.cmd_fill_buffer(commands, self.buffer, offset, bytes, 0) };
        })
    }

    /// A buffer with the same contents.
    pub(crate) fn duplicate(&self, what: &'static str) -> Result<Buffer, VulkanError> {
        let copy = Buffer::new(&self.device, self.bytes, Purpose::Compute, what)?;
        self.copy_to(0, &copy, 0, self.bytes)?;
        Ok(copy)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.settle();
        // SAFETY: nothing that runs uses the buffer any more, and what is recorded with it is not run again; freeing unmaps.
        unsafe {
            self.device.device.destroy_buffer(self.buffer, None);
            self.device.device.free_memory(self.memory, None);
        }
    }
}

/// Kinds of memory that suit a purpose, the best first.
fn types(memory: &vk::PhysicalDeviceMemoryProperties, allowed: u32, purpose: Purpose) -> Vec<u32> {
    let (local, seen, cached) = (
        vk::MemoryPropertyFlags::DEVICE_LOCAL,
        vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT,
        vk::MemoryPropertyFlags::HOST_CACHED,
    );
    let wanted: &[vk::MemoryPropertyFlags] = match purpose {
        Purpose::Compute => &[local, vk::MemoryPropertyFlags::empty()],
        // Read again and again, and so best near the kernels, where the host sees that memory.
        Purpose::Upload => &[local | seen, seen],
        Purpose::Readback => &[seen | cached, seen],
    };
    let mut found: Vec<u32> = Vec::new();
    for flags in wanted {
        let types = memory.memory_types[..memory.memory_type_count as usize].iter().enumerate();
        for (index, _) in types.filter(|(_, ty)| ty.property_flags.contains(*flags)) {
            let index = index as u32;
            if allowed & (1 << index) != 0 && !found.contains(&index) {
                found.push(index);
            }
        }
    }
    found
}
