/**
 * Spans as a request of OTLP in protobuf, field by field from the published protocol. One encoder of six messages in
 * place of a library that brings seven packages for signals that are not sent here. Main thread. Pure. Leaf.
 */
import { SCHEMA_URL } from './names.ts'
import { type Attribute, type AttributeValue, Decimal, type Span } from './spans.ts'

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5
const FAILED = 2
/** Only kept traces are sent. */
const SAMPLED = 1

export function protobufOf(spans: readonly Span[], resource: Readonly<Record<string, string>>): Buffer {
  const scope = new Message().text(1, 'sluice').text(2, resource['service.version'] ?? '')
  const ofScope = new Message().message(1, scope)
  for (const span of spans) ofScope.message(2, spanMessage(span))
  ofScope.text(3, SCHEMA_URL)
  const attributes = new Message()
  for (const pair of Object.entries(resource)) attributes.message(1, keyValue(pair))
  const ofResource = new Message().message(1, attributes).message(2, ofScope).text(3, SCHEMA_URL)
  return new Message().message(1, ofResource).bytes
}

function spanMessage(span: Span): Message {
  const message = new Message().hex(1, span.traceId).hex(2, span.spanId)
  if (span.state !== null) message.text(3, span.state)
  if (span.parentId !== null) message.hex(4, span.parentId)
  message.text(5, span.name).varint(6, span.kind).fixed64(7, span.start).fixed64(8, span.end)
  for (const pair of span.attributes) message.message(9, keyValue(pair))
  for (const { name, time } of span.events) message.message(11, new Message().fixed64(1, time).text(2, name))
  if (span.isFailed) message.message(15, new Message().varint(3, FAILED))
  return message.fixed32(16, SAMPLED)
}

function keyValue([key, value]: Attribute): Message {
  return new Message().text(1, key).message(2, anyValue(value))
}

function anyValue(value: AttributeValue | Decimal): Message {
  const message = new Message()
  if (typeof value === 'string') return message.text(1, value)
  if (typeof value === 'boolean') return message.varint(2, value ? 1 : 0)
  if (value instanceof Decimal) return message.double(4, value.value)
  if (typeof value === 'number')
    return Number.isSafeInteger(value) ? message.varint(3, value) : message.double(4, value)
  const list = new Message()
  for (const each of value) list.message(1, anyValue(each))
  return message.message(5, list)
}

/** One message under way. */
class Message {
  #bytes = Buffer.allocUnsafe(128)
  #length = 0

  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length)
  }

  varint(field: number, value: number): this {
    this.#tag(field, VARINT)
    this.#varint(BigInt.asUintN(64, BigInt(value)))
    return this
  }

  fixed64(field: number, value: bigint): this {
    this.#tag(field, FIXED64)
    this.#room(8)
    this.#length = this.#bytes.writeBigUInt64LE(value, this.#length)
    return this
  }

  fixed32(field: number, value: number): this {
    this.#tag(field, FIXED32)
    this.#room(4)
    this.#length = this.#bytes.writeUInt32LE(value, this.#length)
    return this
  }

  double(field: number, value: number): this {
    this.#tag(field, FIXED64)
    this.#room(8)
    this.#length = this.#bytes.writeDoubleLE(value, this.#length)
    return this
  }

  text(field: number, text: string): this {
    return this.#add(field, Buffer.from(text))
  }

  hex(field: number, text: string): this {
    return this.#add(field, Buffer.from(text, 'hex'))
  }

  message(field: number, message: Message): this {
    return this.#add(field, message.bytes)
  }

  #add(field: number, bytes: Buffer): this {
    this.#tag(field, BYTES)
    this.#varint(BigInt(bytes.length))
    this.#room(bytes.length)
    this.#length += bytes.copy(this.#bytes, this.#length)
    return this
  }

  #tag(field: number, kind: number): void {
    this.#varint(BigInt(field * 8 + kind))
  }

  #varint(value: bigint): void {
    this.#room(10)
    let rest = value
    while (rest > 127n) {
      this.#bytes[this.#length++] = Number(rest & 127n) | 128
      rest >>= 7n
    }
    this.#bytes[this.#length++] = Number(rest)
  }

  #room(bytes: number): void {
    if (this.#length + bytes <= this.#bytes.length) return
    const grown = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#length + bytes))
    this.#bytes.copy(grown, 0, 0, this.#length)
    this.#bytes = grown
  }
}
