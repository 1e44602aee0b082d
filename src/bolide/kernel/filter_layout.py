"""The language of filters, as the kernel reads it: an expression as bytes.

`filter/program.py` writes such programs. All numbers are little-endian:

    header       int32 × 3   count of names, count of nodes, number of the node that is the whole expression
    names        int32 × 2   position and size of each property's name, in this program
    nodes        int32 × 4   operation, a, b, c
                 int64       number: an integer, the bits of a double, or what the operation says below
    texts, lists             what nodes and names point at; a list holds int32 numbers of nodes

A node's operands come before it, so that a program can be checked in one walk and cannot turn in a circle.

    CONSTANT     a: one of FALSE, TRUE, UNKNOWN, ERROR
    PROPERTY     a: number of its name; unknown if the record has no such property
    INTEGER      number
    DOUBLE       number: its bits
    TEXT         a, b: position and size
    AND, OR      a: position of a list, b: its length
    NOT          a: node
    IS_NULL      a: node, number: 1 for IS NOT NULL
    EQUAL        a, b: nodes
    ORDER        a, b: nodes, c: GREATER, GREATER_EQUAL, LESS, LESS_EQUAL
    AMONG        a: node, b: position of a list of TEXT nodes, c: its length, number: 1 for NOT IN
    PART         a: node, b, c: position and size of the text, number: 2 × (CONTAINS, STARTS, ENDS) + 1 for NOT
    PRESENT      a: node: unknown if missing, false if there
    ASK          the program cannot tell

Where the program cannot tell (numbers of unusual form, two properties that are not quite Unicode), the caller is asked.
Words like TEXT and NOT would be lost among the tables of `layout.py`, so this one stands apart.
"""

import struct

CONSTANT, PROPERTY, INTEGER, DOUBLE, TEXT, AND, OR, NOT, IS_NULL, EQUAL, ORDER, AMONG, PART, PRESENT, ASK = range(15)
FALSE, TRUE, UNKNOWN, ERROR = range(4)
GREATER, GREATER_EQUAL, LESS, LESS_EQUAL = range(4)
CONTAINS, STARTS, ENDS = range(3)
HEADER = struct.Struct("<iii")
NAME = struct.Struct("<ii")
NODE = struct.Struct("<iiiiq")
NAME_COUNT_MAX = 64
NODE_COUNT_MAX = 4096
DEPTH_MAX = 200
# So much work between two looks at the time, in bytes that were looked at and nodes that were decided: a long
# expression over long properties takes tens of milliseconds for one message, so the time is looked at on the way too.
WORK_STEP = 0x1_0000
RECORD_WORK = 512  # what a record takes besides
STALLED_MAX = 16
