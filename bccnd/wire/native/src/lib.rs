//! The hot loops of `bccnd.wire` over whole batches; the same in Python is `batch.py`.
//!
//! Rules
//! - Only what is sound is decided here. Whatever else a peer sends is left to the Python code, which finds the reason.
//! - Every place that is given or read is checked against the memory; a wrong one is a ValueError or left alone.
//! - No unsafe code but the view of the buffer, which is held for one call, with the interpreter's lock, and `memory`.
//! - Without memory nothing panics: an object of Python's that cannot be made is a MemoryError.

mod bccn1;
mod columns;
mod fyrehose;
mod memory;
mod sbus;

use hmac::{Hmac, Mac};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use sha2::Sha256;

#[global_allocator]
static MEMORY: memory::Allocator = memory::Allocator;

/// As `PyBytes::new`, which panics without memory.
fn copied<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |room| {
        room.copy_from_slice(bytes);
        Ok(())
    })
}

/// The bytes of a writable, contiguous buffer, as long as `body` runs.
fn with_bytes<T>(memory: &PyBuffer<u8>, body: impl FnOnce(&mut [u8]) -> PyResult<T>) -> PyResult<T> {
    if memory.readonly() || !memory.is_c_contiguous() {
        return Err(PyValueError::new_err("the memory must be writable and contiguous"));
    }
    // SAFETY: the buffer is held by `memory`, and nobody else runs Python code, or writes here, before we return.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.buf_ptr().cast::<u8>(), memory.len_bytes()) };
    body(bytes)
}

fn check_spans(starts: &[usize], ends: &[usize], size: usize) -> PyResult<()> {
    let sound = starts.len() == ends.len() && starts.iter().zip(ends).all(|(start, end)| start <= end && *end <= size);
    sound.then_some(()).ok_or_else(|| PyValueError::new_err("a span outside the memory"))
}

/// The keys of a deployment, prepared, and whether a datagram has to be signed.
#[pyclass(frozen)]
struct Codec {
    macs: Vec<Hmac<Sha256>>,
    required: bool,
}

#[pymethods]
impl Codec {
    #[new]
    fn new(keys: Vec<Vec<u8>>, required: bool) -> PyResult<Self> {
        if required && keys.is_empty() {
            return Err(PyValueError::new_err("hmac is required but there is no key"));
        }
        let macs = keys.iter().map(|key| Hmac::new_from_slice(key).expect("keys have any length")).collect();
        Ok(Codec { macs, required })
    }

    /// `Codec.open`.
    fn open<'py>(
        &self,
        py: Python<'py>,
        memory: PyBuffer<u8>,
        starts: Vec<usize>,
        ends: Vec<usize>,
        region: (usize, usize),
    ) -> PyResult<Bound<'py, PyList>> {
        with_bytes(&memory, |bytes| {
            check_spans(&starts, &ends, bytes.len())?;
            if region.0 > region.1 || region.1 > bytes.len() {
                return Err(PyValueError::new_err("a region outside the memory"));
            }
            let opened = PyList::empty(py);
            for part in bccn1::open_batch(bytes, &starts, &ends, region, &self.macs, self.required) {
                match part {
                    bccn1::Opened::Run(run) => {
                        let src = copied(py, &bytes[run.src])?;
                        let chan = copied(py, &bytes[run.chan])?;
                        opened.append((run.at, src, run.seq, chan, run.starts, run.ends))?;
                    }
                    bccn1::Opened::Other(at) => opened.append(at)?,
                }
            }
            Ok(opened)
        })
    }

    /// `Codec.seal`.
    #[allow(clippy::too_many_arguments)] // one more than clippy likes; a caller in Python names none of them
    fn seal(
        &self,
        src: &[u8],
        seq: u64,
        memory: PyBuffer<u8>,
        starts: Vec<usize>,
        ends: Vec<usize>,
        region: (usize, usize),
    ) -> PyResult<(Vec<usize>, Vec<usize>)> {
        with_bytes(&memory, |bytes| {
            check_spans(&starts, &ends, bytes.len())?;
            check_spans(&[region.0], &[region.1], bytes.len())?;
            if starts.iter().zip(&ends).any(|(start, end)| *start < region.1 && region.0 < *end) {
                return Err(PyValueError::new_err("a packet inside the region"));
            }
            let (before, rest) = bytes.split_at_mut(region.0);
            let (mut room, after) = rest.split_at_mut(region.1 - region.0);
            let mut sealer = self.sealer(src);
            let mut edges = Vec::with_capacity(starts.len() + 1);
            edges.push(region.0);
            for (seq, (&start, &end)) in (seq..).zip(starts.iter().zip(&ends)) {
                let packet = if end <= region.0 {
                    &before[start..end]
                } else {
                    &after[start - region.1..end - region.1]
                };
                sealer
                    .seal(seq, packet.get(4..).unwrap_or_default(), &mut room)
                    .map_err(|_| PyValueError::new_err("no room for the datagrams"))?;
                edges.push(region.1 - room.len());
            }
            Ok((edges[..starts.len()].to_vec(), edges[1..].to_vec()))
        })
    }

    /// `Codec.datagrams`.
    fn datagrams<'py>(
        &self,
        py: Python<'py>,
        src: &[u8],
        seq: u64,
        memory: PyBuffer<u8>,
        starts: Vec<usize>,
        ends: Vec<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        with_bytes(&memory, |bytes| {
            check_spans(&starts, &ends, bytes.len())?;
            let mut sealer = self.sealer(src);
            let datagrams = PyList::empty(py);
            for (seq, (&start, &end)) in (seq..).zip(starts.iter().zip(&ends)) {
                let mut datagram = Vec::with_capacity(end - start + 64);
                let message = bytes[start..end].get(4..).unwrap_or_default();
                sealer.seal(seq, message, &mut datagram).expect("memory takes everything");
                datagrams.append(copied(py, &datagram)?)?;
            }
            Ok(datagrams)
        })
    }
}

impl Codec {
    fn sealer<'a>(&'a self, src: &'a [u8]) -> bccn1::Sealer<'a> {
        bccn1::Sealer::new(src, if self.required { self.macs.first() } else { None })
    }
}

/// `batch.unpack`.
#[pyfunction]
fn unpack(memory: PyBuffer<u8>, start: usize, end: usize) -> PyResult<Option<(Vec<usize>, Vec<usize>)>> {
    with_bytes(&memory, |bytes| {
        check_spans(&[start], &[end], bytes.len())?;
        Ok(sbus::unpack(bytes, start, end))
    })
}

/// `batch.alike`.
#[pyfunction]
fn alike(
    memory: PyBuffer<u8>,
    spans: (Bound<'_, PyList>, Bound<'_, PyList>),
    first: usize,
    routes: &Bound<'_, PyDict>,
    route: &Bound<'_, PyAny>,
    longest: (usize, usize),
) -> PyResult<usize> {
    with_bytes(&memory, |bytes| {
        let (starts, ends) = spans;
        let count = starts.len().min(ends.len());
        let mut head: &[u8] = b"";
        for index in first..count {
            let (start, end) = (starts.get_item(index)?.extract()?, ends.get_item(index)?.extract()?);
            check_spans(&[start], &[end], bytes.len())?;
            let packet: &[u8] = &bytes[start..end];
            if head.is_empty() || !packet.starts_with(head) {
                let Some(other) = sbus::head(packet) else { return Ok(index) };
                let chan = copied(routes.py(), &other[4..other.len() - 1])?;
                if !routes.get_item(chan)?.is_some_and(|found| found.is(route)) {
                    return Ok(index);
                }
                head = other;
            }
            if packet.len() > longest.0 || packet.len() - head.len() > longest.1 {
                return Ok(index);
            }
        }
        Ok(count)
    })
}

/// `fyrehose.number`.
#[pyfunction]
fn number(memory: PyBuffer<u8>, starts: Vec<usize>, ends: Vec<usize>, seq: u64) -> PyResult<usize> {
    with_bytes(&memory, |bytes| {
        check_spans(&starts, &ends, bytes.len())?;
        let spans = starts.iter().zip(&ends).zip(seq..);
        Ok(spans.take_while(|((start, end), seq)| fyrehose::number(&mut bytes[**start..**end], *seq)).count())
    })
}

/// `columns.columns`, as a plain tuple.
#[pyfunction]
#[pyo3(name = "columns")]
fn columns_of<'py>(
    py: Python<'py>,
    memory: PyBuffer<u8>,
    starts: Vec<usize>,
    ends: Vec<usize>,
) -> PyResult<Bound<'py, PyTuple>> {
    with_bytes(&memory, |bytes| {
        check_spans(&starts, &ends, bytes.len())?;
        let made = columns::Columns::of(bytes, &starts, &ends);
        let words = |index: &columns::Index| -> PyResult<Bound<'py, PyAny>> {
            let words = PyList::empty(py);
            for word in &index.words {
                words.append(copied(py, word)?)?;
            }
            Ok((copied(py, &index.numbers)?, words).into_pyobject(py)?.into_any())
        };
        let array = |numbers: &[u8]| -> PyResult<Bound<'py, PyAny>> { Ok(copied(py, numbers)?.into_any()) };
        let others = PyList::empty(py);
        for (row, packet) in &made.others {
            others.append((*row, copied(py, packet)?))?;
        }
        PyTuple::new(
            py,
            [
                made.rows.into_pyobject(py)?.into_any(),
                array(&made.time_ns)?,
                array(&made.size)?,
                array(&made.seq)?,
                array(&made.sound)?,
                words(&made.peer)?,
                words(&made.verdict)?,
                words(&made.interface)?,
                words(&made.mode)?,
                words(&made.src)?,
                words(&made.chan)?,
                array(&made.payload_at)?,
                array(&made.payload)?,
                others.into_any(),
            ],
        )
    })
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Codec>()?;
    module.add_function(wrap_pyfunction!(columns_of, module)?)?;
    module.add_function(wrap_pyfunction!(number, module)?)?;
    module.add_function(wrap_pyfunction!(unpack, module)?)?;
    module.add_function(wrap_pyfunction!(alike, module)?)
}
