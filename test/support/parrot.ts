/**
 * A provider on loopback that says, in any of the four formats, exactly what the test tells it to, in the pieces and
 * reads that the test chooses. It keeps the requests it got.
 */
import { createServer } from 'node:http'
import type { Test } from 'tap'
import { READERS, type SimFormat } from '../../src/apps/simulator/ask.ts'
import { type ReplyPart, tallyOf } from '../../src/apps/simulator/reply.ts'
import { SPEAKERS } from '../../src/apps/simulator/simulator.ts'
import { parseObject, readBody, targetOf } from '../../src/apps/simulator/targets.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { listening } from './listening.ts'

export const FORMATS: readonly SimFormat[] = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
]

export interface Parrot {
  readonly url: string
  /** What it says next, in the pieces of a stream. */
  parts: readonly ReplyPart[]
  /** Bytes of each write of a stream; null: all at once. */
  writeBytes: number | null
  /** Texts of the bodies it got. */
  readonly bodies: string[]
  /** Whether its text events of the Responses format carry padding, which says nothing. */
  pads: boolean
  /** Streams end here, before their finish, and wait for this. */
  hangs: boolean
  /** Connections that the other side closed before the reply had ended. */
  closedEarly: number
  close(): void
}

export const pieces = (...list: readonly string[]) => ({ tokens: list.length, each: () => list })
export const speaking = (...list: readonly string[]): readonly ReplyPart[] => [
  { kind: 'text', pieces: pieces(...list) },
]

export const PADDING = 'p4dd1ng'
const TEXT_EVENT = '"type":"response.output_text.delta",'
const PADDED_EVENT = `${TEXT_EVENT}"obfuscation":"${PADDING}",`

/** Rows for the catalogue: `parrot/<format>`. */
export function parrotRows(url: string): { providers: Config['providers']; models: Config['models'] } {
  return {
    providers: [{ slug: 'parrot', format: 'openai-chat', baseUrl: url, apiKey: 'k' }],
    models: FORMATS.map(format => ({
      id: `parrot/${format}`,
      endpoints: [
        {
          provider: 'parrot',
          upstreamModel: 'parrot',
          format,
          pricing: { prompt: '0.0000001', completion: '0.0000004' },
        },
      ],
    })) as Config['models'],
  }
}

/** @param t the test with whose end it closes; without it, the caller closes it */
export async function startParrot(t?: Pick<Test, 'teardown'>): Promise<Parrot> {
  const server = createServer((request, response) => {
    response.on('close', () => {
      if (!response.writableFinished) parrot.closedEarly++
    })
    void readBody(request).then(async text => {
      parrot.bodies.push(text ?? '')
      const target = targetOf('POST', request.url ?? '')
      const body = parseObject(text ?? '')
      if (target.format === null || body === null) throw new Error('the parrot was asked nonsense')
      const ask = READERS[target.format](body, target)
      const reply = { parts: parrot.parts, finish: 'stop', paceMs: 0 } as const
      const speech = { ask, reply, tally: tallyOf(reply, 1), id: 'x', createdSeconds: 1 }
      const speaker = SPEAKERS[target.format]
      if (!ask.stream) {
        response.writeHead(200, { 'content-type': 'application/json' })
        response.end(JSON.stringify(speaker.whole(speech)))
        return
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const frames = [...speaker.frames(speech)]
      const sent = parrot.hangs
        ? frames.slice(0, frames.findLastIndex(({ kind }) => kind === 'token') + 1)
        : frames
      const said = sent.map(frame => frame.text).join('')
      const bytes = Buffer.from(parrot.pads ? said.replaceAll(TEXT_EVENT, PADDED_EVENT) : said)
      const size = parrot.writeBytes ?? bytes.length
      for (let at = 0; at < bytes.length && !response.destroyed; at += size) {
        response.write(bytes.subarray(at, at + size))
        await new Promise(resolve => setImmediate(resolve))
      }
      if (!parrot.hangs) response.end()
    })
  })
  const { url } = await listening(server, t)
  const parrot: Parrot = {
    url,
    parts: speaking('hello'),
    writeBytes: null,
    pads: false,
    bodies: [],
    hangs: false,
    closedEarly: 0,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
  return parrot
}

/** What the parrot was asked last: the first part of the first turn, in whatever format. */
export function firstPart({ bodies }: Parrot): unknown {
  type Turns = Readonly<Record<string, readonly { content?: unknown[]; parts?: unknown[] }[]>>
  const body = JSON.parse(bodies.at(-1) ?? '') as Turns
  const [turn] = body['messages'] ?? body['input'] ?? body['contents'] ?? []
  return (turn?.content ?? turn?.parts)?.[0]
}
