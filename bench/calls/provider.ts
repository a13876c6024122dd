/**
 * The provider behind counted requests: it sends the same bytes in the same pieces every time, so that counts are
 * exact.
 */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { callBody, framesOf, jsonBody, jsonText, PATHS, type Plan, planOf, type Wire } from '../wire.ts'

/** The gateway reads each piece by itself when it has this long for it. */
const PIECE_MS = 4
const ID = '00000001'

export interface CountedProvider {
  readonly port: number
  close(): void
}

interface Asked {
  readonly model: string
  readonly input?: unknown
  readonly tools?: readonly { readonly name: string }[]
}

/** Says a stream's texts one frame at a time to models of this ending, and otherwise ten frames at once. */
export const ALONE = '-alone'
const FRAMES_PER_PIECE = 10

/** A model that is offered a function calls it first. */
export async function startCountedProvider(): Promise<CountedProvider> {
  const server = createServer((request, reply) => {
    const wire = (Object.keys(PATHS) as Wire[]).find(one => PATHS[one] === request.url) ?? 'openai-responses'
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(pieces).toString()) as Asked
      const { model } = body
      const plan = planOf(model.replace(ALONE, ''))
      const called = nextCall(body)
      if (called !== null) send(callBody(ID, model, called), reply)
      else if (plan?.kind === 'json') send(jsonBody(wire, ID, model, jsonText(plan.textBytes)), reply)
      else if (plan?.kind === 'stream')
        void stream(wire, model, plan, reply, model.endsWith(ALONE) ? 1 : FRAMES_PER_PIECE)
      else reply.writeHead(404).end()
    })
  })
  server.keepAliveTimeout = 0
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, close: () => server.close() }
}

/** The first function that is offered, unless its result is there. */
function nextCall({ tools, input }: Asked): string | null {
  const isAnswered = JSON.stringify(input ?? null).includes('"function_call_output"')
  return isAnswered ? null : (tools?.[0]?.name ?? null)
}

function send(body: string, reply: ServerResponse): void {
  reply.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
  reply.end(body)
}

async function stream(
  wire: Wire,
  model: string,
  plan: Plan & { kind: 'stream' },
  reply: ServerResponse,
  framesPerPiece: number,
): Promise<void> {
  const { socket } = reply
  socket?.setNoDelay(true)
  const frames = framesOf(wire, ID, model)
  const texts = Array.from({ length: plan.events }, (_, at) => `@${at}`.padEnd(plan.textBytes, ' word'))
  reply.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  let piece = frames.opening
  for (const [at, text] of texts.entries()) {
    piece += frames.delta(at, text)
    if ((at + 1) % framesPerPiece !== 0) continue
    reply.write(piece)
    piece = ''
    await pause(PIECE_MS)
  }
  reply.end(piece + frames.closing(texts.join(''), plan.events))
}
