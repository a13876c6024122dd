/** The provider of counted requests: the same bytes in the same pieces every time, so that counts are exact. */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { framesOf, jsonBody, jsonText, PATHS, type Plan, planOf, type Wire } from '../wire.ts'

/** The gateway reads each piece by itself when it has this long for it. */
const PIECE_MS = 4
const ID = '00000001'

export interface CountedProvider {
  readonly port: number
  close(): void
}

/** @param framesPerPiece text frames of a stream that are written at once */
export async function startCountedProvider(framesPerPiece: number): Promise<CountedProvider> {
  const server = createServer((request, reply) => {
    const wire = (Object.keys(PATHS) as Wire[]).find(one => PATHS[one] === request.url) ?? 'openai-responses'
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const { model } = JSON.parse(Buffer.concat(pieces).toString()) as { model: string }
      const plan = planOf(model)
      if (plan?.kind === 'json') answer(wire, model, plan, reply)
      else if (plan?.kind === 'stream') void stream(wire, model, plan, reply, framesPerPiece)
      else reply.writeHead(404).end()
    })
  })
  server.keepAliveTimeout = 0
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, close: () => server.close() }
}

function answer(wire: Wire, model: string, plan: Plan & { kind: 'json' }, reply: ServerResponse): void {
  const body = jsonBody(wire, ID, model, jsonText(plan.textBytes))
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
