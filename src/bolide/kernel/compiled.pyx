# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: embedsignature=True
"""The kernel with types: the meaning stands in Python, and this is the same sooner.

One library of many parts, so that each rule is compiled once and the guard of unreadable pages has one state. Every
function hurries through regular input and hands anything irregular (odd escapes, nested values, nulls, bytes that are
not UTF-8) to its twin for that one item. Every length is checked before a byte is read.
"""

import os
from hashlib import md5

from cpython.array cimport array, clone
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int8_t, int16_t, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from bolide.kernel import plain, plain_client, plain_records
from bolide.kernel.layout import COLUMNS, HUFFMAN_SIZES, LANGUAGES, STATIC_HEADERS
from bolide.kernel.plain_records import key_hash, tag_hash

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void* at) nogil

# Bytes, texts, headers
include "bytes.pxi"
include "decimal.pxi"
include "scan.pxi"
include "unescape.pxi"
include "head.pxi"
include "binary_head.pxi"

# Records and entries
include "pairs.pxi"
include "entries.pxi"
include "record_base.pxi"
include "record_parts.pxi"
include "record_reader.pxi"
include "record_layout.pxi"
include "record_walk.pxi"
include "record_redelivery.pxi"

# What is exported
include "frames.pxi"
include "records.pxi"
include "send_properties.pxi"
include "sends.pxi"
include "pulls.pxi"
include "signed.pxi"
include "outcomes.pxi"
include "later.pxi"
include "filter.pxi"
include "client.pxi"
include "columns.pxi"
include "rows.pxi"
include "faults.pxi"
include "hpack.pxi"
include "http2.pxi"
include "grpc_sends.pxi"
include "grpc_acks.pxi"
include "grpc_received.pxi"
