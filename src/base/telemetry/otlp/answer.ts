/** Reads how many spans of an accepted batch a collector rejected: the protocol's partial success. Pure. */

/**
 * @param body the collector's answer; empty: it accepted all spans
 * @returns 0 if it is not an answer of the protocol
 */
export function rejectedSpans(body: Buffer, protocol: 'http/json' | 'http/protobuf'): number {
  const count = protocol === 'http/json' ? rejectedInJson(body) : rejectedInProtobuf(body)
  return Number.isSafeInteger(count) && count > 0 ? count : 0
}

function rejectedInJson(body: Buffer): number {
  try {
    const answer = JSON.parse(body.toString()) as {
      partialSuccess?: { rejectedSpans?: number | string }
    } | null
    return Number(answer?.partialSuccess?.rejectedSpans ?? 0)
  } catch {
    return 0
  }
}

/** `ExportTraceServiceResponse.partial_success` is field 1, and its `rejected_spans` field 1. */
function rejectedInProtobuf(body: Buffer): number {
  const partial = fieldOne(body)
  const rejected = typeof partial === 'object' ? fieldOne(partial) : undefined
  return typeof rejected === 'number' ? rejected : 0
}

const WIRE_VARINT = 0
const WIRE_BYTES = 2

/** Field 1 of a message of varints and bytes; undefined: it is missing, or other fields precede it. */
function fieldOne(message: Buffer): number | Buffer | undefined {
  let position = 0
  const varint = (): number => {
    let value = 0
    for (let factor = 1; position < message.length; factor *= 128) {
      const byte = message[position++] ?? 0
      value += (byte & 0x7f) * factor
      if (byte < 0x80) break
    }
    return value
  }
  while (position < message.length) {
    const tag = varint()
    const wireType = tag & 7
    if (wireType !== WIRE_VARINT && wireType !== WIRE_BYTES) return undefined
    const value = varint()
    const content = wireType === WIRE_VARINT ? value : message.subarray(position, position + value)
    if (tag >> 3 === 1) return content
    if (wireType === WIRE_BYTES) position += value
  }
  return undefined
}
