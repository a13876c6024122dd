/**
 * Encodes spans as an OTLP request in protobuf, field by field from the published protocol. One encoder of six messages
 * replaces a library with seven packages for signals that are not sent here. Main thread. Pure. Leaf.
 */
import { NAMES, SCHEMA_URL } from './names.ts'
import { type AttributeValue, Decimal, type Span } from './spans.ts'

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5
const FAILED = 2
/** Only kept traces are sent. */
const SAMPLED = 1
const TWO_TO_32 = 2 ** 32
/** Bytes of a span with the usual attributes. */
const SPAN_BYTES = 1_500

export function protobufOf(spans: readonly Span[], resource: Readonly<Record<string, string>>): Buffer {
  const writer = new Writer(4_096 + spans.length * SPAN_BYTES)
  const ofResource = writer.open(1)
  const attributes = writer.open(1)
  for (const [name, value] of Object.entries(resource)) keyValue(writer, 1, name, value)
  writer.close(attributes)
  const ofScope = writer.open(2)
  const scope = writer.open(1)
  writer.text(1, 'sluice')
  writer.text(2, resource['service.version'] ?? '')
  writer.close(scope)
  for (const span of spans) writeSpan(writer, span)
  writer.text(3, SCHEMA_URL)
  writer.close(ofScope)
  writer.text(3, SCHEMA_URL)
  writer.close(ofResource)
  return writer.bytes
}

function writeSpan(writer: Writer, span: Span): void {
  const message = writer.open(2)
  writer.hex(1, span.traceId)
  writer.hex(2, span.spanId)
  if (span.state !== null) writer.text(3, span.state)
  if (span.parentId !== null) writer.hex(4, span.parentId)
  writer.text(5, span.name)
  writer.varint(6, span.kind)
  writer.nanos(7, span.startMicros)
  writer.nanos(8, span.endMicros)
  for (const [name, value] of span.attributes) keyValue(writer, 9, name, value)
  for (const { name, micros } of span.events) {
    const event = writer.open(11)
    writer.nanos(1, micros)
    writer.text(2, name)
    writer.close(event)
  }
  if (span.isFailed) {
    const status = writer.open(15)
    writer.varint(3, FAILED)
    writer.close(status)
  }
  writer.fixed32(16, SAMPLED)
  writer.close(message)
}

function keyValue(writer: Writer, field: number, name: string, value: AttributeValue): void {
  const pair = writer.open(field)
  writer.name(1, name)
  anyValue(writer, 2, value)
  writer.close(pair)
}

function anyValue(writer: Writer, field: number, value: AttributeValue): void {
  const message = writer.open(field)
  if (typeof value === 'string') writer.text(1, value)
  else if (typeof value === 'boolean') writer.varint(2, value ? 1 : 0)
  else if (value instanceof Decimal) writer.double(4, value.value)
  else if (typeof value === 'number') {
    if (Number.isSafeInteger(value)) writer.varint(3, value)
    else writer.double(4, value)
  } else {
    const list = writer.open(5)
    for (const each of value) anyValue(writer, 1, each)
    writer.close(list)
  }
  writer.close(message)
}

/** Encoded attribute names, created once. */
const ENCODED_NAMES: ReadonlyMap<string, Buffer> = new Map(
  Object.values(NAMES).map(name => [name, Buffer.from(name)]),
)

/** Nested messages in one buffer. */
class Writer {
  #bytes: Buffer
  #position = 0

  constructor(bytes: number) {
    this.#bytes = Buffer.allocUnsafe(bytes)
  }

  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#position)
  }

  /** Starts a message. Returns its position, for `close`. */
  open(field: number): number {
    this.#ensureRoom(16)
    this.#tag(field, BYTES)
    // Most have fewer than 128 bytes, so their length takes one byte.
    return ++this.#position
  }

  close(from: number): void {
    const length = this.#position - from
    const more = bytesOf(length) - 1
    if (more > 0) {
      this.#ensureRoom(more)
      this.#bytes.copyWithin(from + more, from, this.#position)
    }
    this.#position = from - 1
    this.#varint(length)
    this.#position += length
  }

  varint(field: number, value: number): void {
    this.#ensureRoom(16)
    this.#tag(field, VARINT)
    if (value >= 0) this.#varint(value)
    else this.#longVarint(BigInt.asUintN(64, BigInt(value)))
  }

  /** Nanoseconds, from microseconds. */
  nanos(field: number, micros: number): void {
    this.#ensureRoom(16)
    this.#tag(field, FIXED64)
    const low = (micros % TWO_TO_32) * 1_000
    const high = Math.floor(micros / TWO_TO_32) * 1_000 + Math.floor(low / TWO_TO_32)
    this.#position = this.#bytes.writeUInt32LE(low % TWO_TO_32, this.#position)
    this.#position = this.#bytes.writeUInt32LE(high, this.#position)
  }

  fixed32(field: number, value: number): void {
    this.#ensureRoom(16)
    this.#tag(field, FIXED32)
    this.#position = this.#bytes.writeUInt32LE(value, this.#position)
  }

  double(field: number, value: number): void {
    this.#ensureRoom(16)
    this.#tag(field, FIXED64)
    this.#position = this.#bytes.writeDoubleLE(value, this.#position)
  }

  text(field: number, text: string): void {
    const message = this.open(field)
    this.#ensureRoom(text.length * 3)
    this.#position += this.#bytes.write(text, this.#position)
    this.close(message)
  }

  /** Writes a text that is usually one of the attribute names. */
  name(field: number, name: string): void {
    const encodedName = ENCODED_NAMES.get(name)
    if (encodedName === undefined) {
      this.text(field, name)
      return
    }
    this.#ensureRoom(16 + encodedName.length)
    this.#tag(field, BYTES)
    this.#varint(encodedName.length)
    this.#bytes.set(encodedName, this.#position)
    this.#position += encodedName.length
  }

  hex(field: number, text: string): void {
    const message = this.open(field)
    this.#ensureRoom(text.length)
    this.#position += this.#bytes.write(text, this.#position, 'hex')
    this.close(message)
  }

  #tag(field: number, kind: number): void {
    this.#varint(field * 8 + kind)
  }

  #varint(value: number): void {
    let remaining = value
    while (remaining > 127) {
      this.#bytes[this.#position++] = (remaining % 128) | 128
      remaining = Math.floor(remaining / 128)
    }
    this.#bytes[this.#position++] = remaining
  }

  #longVarint(value: bigint): void {
    let remaining = value
    while (remaining > 127n) {
      this.#bytes[this.#position++] = Number(remaining & 127n) | 128
      remaining >>= 7n
    }
    this.#bytes[this.#position++] = Number(remaining)
  }

  #ensureRoom(bytes: number): void {
    if (this.#position + bytes <= this.#bytes.length) return
    const largerBuffer = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#position + bytes))
    this.#bytes.copy(largerBuffer, 0, 0, this.#position)
    this.#bytes = largerBuffer
  }
}

/** Number of bytes of a varint. */
function bytesOf(value: number): number {
  let bytes = 1
  for (let rest = value; rest > 127; rest = Math.floor(rest / 128)) bytes++
  return bytes
}
