/** AWS event streams for tests: text streams as binary messages, written by AWS's own codec. */
import { EventStreamCodec } from '@smithy/eventstream-codec'

const codec = new EventStreamCodec(
  bytes => (typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString('utf8')),
  text => Buffer.from(text, 'utf8'),
)

/** One message. The type of an exception begins with `exception:`. */
export function awsMessage(type: string, data: string): Buffer {
  const exception = /^exception:(.*)$/.exec(type)?.[1]
  const headers: Readonly<Record<string, string>> =
    exception === undefined
      ? { ':event-type': type, ':content-type': 'application/json', ':message-type': 'event' }
      : { ':exception-type': exception, ':content-type': 'application/json', ':message-type': 'exception' }
  const typed = Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, { type: 'string' as const, value }]),
  )
  return Buffer.from(codec.encode({ headers: typed, body: Buffer.from(data, 'utf8') }))
}

/** The events of a text stream (`event:` and `data:` lines) as messages. */
export function awsEvents(text: string): Buffer[] {
  return text
    .split(/\n\n+/)
    .filter(frame => frame.trim() !== '')
    .map(frame => {
      const type = /^event: (.*)$/m.exec(frame)?.[1] ?? ''
      return awsMessage(type, /^data: (.*)$/m.exec(frame)?.[1] ?? '')
    })
}
