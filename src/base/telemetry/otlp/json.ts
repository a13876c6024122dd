/** Encodes spans as an OTLP request in JSON: ids in hex, 64-bit numbers as strings. Main thread. Pure. Leaf. */
import { SCHEMA_URL } from './names.ts'
import { type Attribute, type AttributeValue, Decimal, type Span } from './spans.ts'

const FAILED = 2
/** Only kept traces are sent. */
const SAMPLED = 1

export function jsonOf(spans: readonly Span[], resource: Readonly<Record<string, string>>): Buffer {
  const document = {
    resourceSpans: [
      {
        resource: { attributes: Object.entries(resource).map(keyValue) },
        scopeSpans: [
          {
            scope: { name: 'sluice', version: resource['service.version'] ?? '' },
            spans: spans.map(spanJson),
            schemaUrl: SCHEMA_URL,
          },
        ],
        schemaUrl: SCHEMA_URL,
      },
    ],
  }
  return Buffer.from(JSON.stringify(document))
}

function spanJson(span: Span): object {
  return {
    traceId: span.traceId,
    spanId: span.spanId,
    ...(span.state === null ? {} : { traceState: span.state }),
    ...(span.parentId === null ? {} : { parentSpanId: span.parentId }),
    flags: SAMPLED,
    name: span.name,
    kind: span.kind,
    startTimeUnixNano: `${span.startMicros}000`,
    endTimeUnixNano: `${span.endMicros}000`,
    attributes: span.attributes.map(keyValue),
    events: span.events.map(({ name, micros }) => ({ timeUnixNano: `${micros}000`, name })),
    status: span.isFailed ? { code: FAILED } : {},
  }
}

function keyValue([key, value]: Attribute): object {
  return { key, value: anyValue(value) }
}

function anyValue(value: AttributeValue): object {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (value instanceof Decimal) return { doubleValue: value.value }
  if (typeof value === 'number')
    return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value }
  return { arrayValue: { values: value.map(each => ({ stringValue: each })) } }
}
