/** A trace collector: OTLP over HTTP, JSON and protobuf, with its own decoder written from the published protocol. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import { gunzipSync } from 'node:zlib'
import { listening } from './listening.ts'

export interface CollectedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string
  /** `tracestate`; empty: none. */
  readonly state: string
  readonly name: string
  readonly kind: number
  readonly start: bigint
  readonly end: bigint
  readonly attributes: Readonly<Record<string, unknown>>
  readonly events: readonly { readonly name: string; readonly time: bigint }[]
  readonly failed: boolean
}

interface Collector {
  readonly url: string
  readonly spans: CollectedSpan[]
  /** Attributes of the resource, and the URLs of schemas, of the last request. */
  resource: Readonly<Record<string, unknown>>
  schemaUrls: readonly string[]
  readonly headers: IncomingHttpHeaders[]
  /** All bodies as they came, unpacked. */
  readonly bodies: Buffer[]
  /** Statuses to answer with, one for each request; then 200. `hang`: no answer. */
  readonly statuses: (number | 'hang' | { readonly status: number; readonly retryAfter: string })[]
  /** Bodies to answer with, one for each request; then an empty object. */
  readonly answers: (string | Buffer)[]
  close(): Promise<void>
}

export async function startCollector(): Promise<Collector> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const scripted = collector.statuses.shift() ?? 200
      collector.headers.push(request.headers)
      if (scripted === 'hang') return
      const { status, retryAfter } =
        typeof scripted === 'number' ? { status: scripted, retryAfter: null } : scripted
      if (retryAfter !== null) response.setHeader('retry-after', retryAfter)
      if (status === 200 && request.url === '/v1/traces') {
        const packed = Buffer.concat(chunks)
        const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(packed) : packed
        collector.bodies.push(body)
        take(request.headers['content-type'] === 'application/json' ? fromJson(body) : fromProtobuf(body))
      }
      response.writeHead(request.url === '/v1/traces' ? status : 404, { 'content-type': 'application/json' })
      response.end(collector.answers.shift() ?? '{}')
    })
  })
  const { url } = await listening(server)
  const take = ({ resource, schemaUrls, spans }: Read): void => {
    collector.resource = resource
    collector.schemaUrls = schemaUrls
    collector.spans.push(...spans)
  }
  const collector: Collector = {
    url,
    spans: [],
    resource: {},
    schemaUrls: [],
    headers: [],
    bodies: [],
    statuses: [],
    answers: [],
    async close() {
      server.closeAllConnections()
      await new Promise(done => server.close(done))
    },
  }
  return collector
}

interface Read extends Pick<Collector, 'resource' | 'schemaUrls'> {
  readonly spans: readonly CollectedSpan[]
}

type Json = Readonly<Record<string, unknown>>

function fromJson(body: Buffer): Read {
  const [ofResource = {}] = (JSON.parse(body.toString()) as { resourceSpans: Json[] }).resourceSpans
  const [ofScope = {}] = ofResource['scopeSpans'] as Json[]
  const attributesOf = (list: unknown): Record<string, unknown> =>
    Object.fromEntries(
      (list as { key: string; value: Json }[]).map(({ key, value }) => [key, jsonValue(value)]),
    )
  return {
    resource: attributesOf((ofResource['resource'] as Json)['attributes']),
    schemaUrls: [String(ofResource['schemaUrl']), String(ofScope['schemaUrl'])],
    spans: (ofScope['spans'] as Json[]).map(span => ({
      traceId: String(span['traceId']),
      spanId: String(span['spanId']),
      parentSpanId: String(span['parentSpanId'] ?? ''),
      state: String(span['traceState'] ?? ''),
      name: String(span['name']),
      kind: Number(span['kind']),
      start: BigInt(String(span['startTimeUnixNano'])),
      end: BigInt(String(span['endTimeUnixNano'])),
      attributes: attributesOf(span['attributes']),
      events: (span['events'] as Json[]).map(event => ({
        name: String(event['name']),
        time: BigInt(String(event['timeUnixNano'])),
      })),
      failed: (span['status'] as Json)['code'] === 2,
    })),
  }
}

function jsonValue(value: Json): unknown {
  if ('intValue' in value) return Number(value['intValue'])
  if ('arrayValue' in value) return ((value['arrayValue'] as Json)['values'] as Json[]).map(jsonValue)
  return value['stringValue'] ?? value['boolValue'] ?? value['doubleValue']
}

/** Fields of a message by their numbers: numbers of varints, eight or four bytes, or bytes. */
type Fields = Map<number, (bigint | Buffer)[]>

function fieldsOf(bytes: Buffer): Fields {
  const fields: Fields = new Map()
  let at = 0
  const varint = (): bigint => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes.readUInt8(at++)
      value |= BigInt(byte & 127) << shift
      if (byte < 128) return value
    }
  }
  const taken = (length: number): Buffer => {
    at += length
    if (at > bytes.length) throw new RangeError('a field goes beyond its message')
    return bytes.subarray(at - length, at)
  }
  while (at < bytes.length) {
    const tag = Number(varint())
    const kind = tag & 7
    const value =
      kind === 0 ? varint() : kind === 1 ? taken(8) : kind === 5 ? taken(4) : taken(Number(varint()))
    if (kind > 2 && kind !== 5) throw new RangeError(`kind ${kind}`)
    fields.set(tag >> 3, [...(fields.get(tag >> 3) ?? []), value])
  }
  return fields
}

const all = (fields: Fields, number: number): Fields[] =>
  (fields.get(number) ?? []).map(bytes => fieldsOf(bytes as Buffer))
const bytesAt = (fields: Fields, number: number): Buffer =>
  (fields.get(number)?.[0] as Buffer) ?? Buffer.alloc(0)
const textAt = (fields: Fields, number: number): string => bytesAt(fields, number).toString()
const timeAt = (fields: Fields, number: number): bigint => bytesAt(fields, number).readBigUInt64LE()

function attributesIn(fields: Fields, number: number): Record<string, unknown> {
  return Object.fromEntries(
    all(fields, number).map(pair => [textAt(pair, 1), valueIn(all(pair, 2)[0] ?? new Map())]),
  )
}

function valueIn(value: Fields): unknown {
  if (value.has(1)) return textAt(value, 1)
  if (value.has(2)) return value.get(2)?.[0] === 1n
  if (value.has(3)) return Number(BigInt.asIntN(64, value.get(3)?.[0] as bigint))
  if (value.has(4)) return bytesAt(value, 4).readDoubleLE()
  return all(all(value, 5)[0] ?? new Map(), 1).map(valueIn)
}

function fromProtobuf(body: Buffer): Read {
  const ofResource = all(fieldsOf(body), 1)[0] ?? new Map()
  const ofScope = all(ofResource, 2)[0] ?? new Map()
  return {
    resource: attributesIn(all(ofResource, 1)[0] ?? new Map(), 1),
    schemaUrls: [textAt(ofResource, 3), textAt(ofScope, 3)],
    spans: all(ofScope, 2).map(span => ({
      traceId: bytesAt(span, 1).toString('hex'),
      spanId: bytesAt(span, 2).toString('hex'),
      parentSpanId: bytesAt(span, 4).toString('hex'),
      state: textAt(span, 3),
      name: textAt(span, 5),
      kind: Number(span.get(6)?.[0]),
      start: timeAt(span, 7),
      end: timeAt(span, 8),
      attributes: attributesIn(span, 9),
      events: all(span, 11).map(event => ({ name: textAt(event, 2), time: timeAt(event, 1) })),
      failed: all(span, 15)[0]?.get(3)?.[0] === 2n,
    })),
  }
}
