/** Event streams of AWS for tests: text streams as binary messages, and their reading. The kept codec writes them. */
import { EventStreamCodec } from '@smithy/eventstream-codec'
import type { Delta, Format } from '../../src/formats/format.ts'
import type { Endpoint } from '../../src/providers/provider.ts'
import { AwsEventParser } from '../../src/upstream/aws-events.ts'

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

/** A whole stream through a decoder, as the gateway feeds it. @throws what the decoder throws */
export function decodeAwsStream(format: Format, chunks: readonly Buffer[], endpoint?: Endpoint): Delta[] {
  const deltas: Delta[] = []
  const decoder = format.decoder(delta => deltas.push(delta), endpoint)
  const parser = new AwsEventParser((event, data) => decoder.frame(event, data))
  for (const chunk of chunks) parser.push(chunk)
  parser.end()
  decoder.end()
  return deltas
}
