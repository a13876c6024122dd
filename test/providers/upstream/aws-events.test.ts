import { EventStreamCodec, type MessageHeaders } from '@smithy/eventstream-codec'
import t from 'tap'
import { AwsEventParser } from '../../../src/providers/upstream/aws-events.ts'
import { awsMessage } from '../../support/aws-events.ts'
import { arrivals } from '../../support/recordings.ts'

const codec = new EventStreamCodec(String, text => Buffer.from(text))

function parse(chunks: readonly Buffer[], maxBytes?: number): string[] {
  const frames: string[] = []
  const parser = new AwsEventParser((event, data) => frames.push(`${event} ${data}`), maxBytes)
  for (const chunk of chunks) parser.push(chunk)
  parser.end()
  return frames
}

const MESSAGES = [
  awsMessage('messageStart', '{"role":"assistant"}'),
  awsMessage('contentBlockDelta', JSON.stringify({ delta: { text: 'ü👋'.repeat(20_000) } })),
  awsMessage('', ''),
  awsMessage('exception:throttlingException', '{"message":"slow down"}'),
]

t.test('messages are the same however they arrive', async t => {
  const expected = [
    'messageStart {"role":"assistant"}',
    `contentBlockDelta ${JSON.stringify({ delta: { text: 'ü👋'.repeat(20_000) } })}`,
    ' ',
    'exception:throttlingException {"message":"slow down"}',
  ]
  for (const { name, chunks } of arrivals(Buffer.concat(MESSAGES))) {
    t.same(parse(chunks), expected, name)
  }
})

t.test('an event of another API comes out of its chunk', async t => {
  const carried = (body: string) => parse([awsMessage('chunk', body)])
  const bytes = Buffer.from('{"type":"ü"}').toString('base64')
  t.same(carried(JSON.stringify({ bytes, p: 'abc' })), ['chunk {"type":"ü"}'])
  t.same(carried('{}'), ['chunk '])
  t.same(carried('nothing'), ['chunk '])
  t.throws(() => carried(`{"x":${'['.repeat(500_000)}`), { code: 'provider_unavailable' })
})

t.test('a chunk may be reused after it was pushed', async t => {
  const bytes = Buffer.concat(MESSAGES)
  const frames: string[] = []
  const parser = new AwsEventParser(event => frames.push(event))
  for (let at = 0; at < bytes.length; at += 100) {
    const chunk = Buffer.from(bytes.subarray(at, at + 100))
    parser.push(chunk)
    chunk.fill(0xff)
  }
  t.equal(frames.length, 4)
})

t.test('a message that is cut is told to nobody, and its bytes are counted until then', async t => {
  const [first = Buffer.alloc(0)] = MESSAGES
  const parser = new AwsEventParser(() => t.fail('a message'))
  parser.push(first.subarray(0, 5))
  t.equal(parser.waitingBytes, 5)
  parser.push(first.subarray(5, first.length - 1))
  t.equal(parser.waitingBytes, first.length - 1)
  parser.end()
  t.equal(parser.waitingBytes, 0)
})

t.test('a message that is damaged, too short or too large ends the stream', async t => {
  const [first = Buffer.alloc(0)] = MESSAGES
  const failure = { code: 'provider_unavailable' }
  const tooLarge = { code: 'reply_too_large', message: /too large/ }
  for (let at = 0; at < first.length; at++) {
    const damaged = Buffer.from(first)
    damaged[at] = (damaged[at] ?? 0) ^ 0x01
    // A longer length waits for bytes that never come.
    const frames: string[] = []
    try {
      frames.push(...parse([damaged]))
    } catch (error) {
      t.match(error, { code: /^(?:provider_unavailable|reply_too_large)$/ }, `byte ${at}`)
    }
    t.same(frames, [], `byte ${at}`)
  }
  t.throws(() => parse([Buffer.alloc(12)]), { ...failure, message: /damaged/ })
  t.throws(() => parse([Buffer.from('ffffffff0000000000000000', 'hex')]), tooLarge)
  t.throws(() => parse([Buffer.concat(MESSAGES)], 1_000), tooLarge)
  t.throws(() => parse([Buffer.from('{"message":"not binary"}')]), failure)
})

t.test('a message of headers alone ends the stream before they are read', async t => {
  const many = Object.fromEntries(
    Array.from({ length: 20_000 }, (_, at) => [`h${at}`, { type: 'boolean' as const, value: true }]),
  )
  const text = { type: 'string' as const, value: 'messageStart' }
  const encoded = (headers: MessageHeaders) => Buffer.from(codec.encode({ headers, body: Buffer.from('{}') }))
  t.throws(() => parse([encoded({ ':event-type': text, ...many })]), { code: 'provider_unavailable' })
  t.same(parse([encoded({ ':event-type': text })]), ['messageStart {}'])
})
