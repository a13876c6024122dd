/** A client of Responses over WebSocket: sends messages, and collects those of each answer. */
import { WebSocket } from 'undici'

export interface SocketEvent {
  readonly type: string
  readonly [field: string]: unknown
}

const LAST = /^(?:response\.(?:completed|incomplete|failed)|error)$/

export interface SocketClient {
  /** Sends a text as it is. */
  send(text: string | Uint8Array): void
  /** Asks for a response, and resolves with its events; rejects when the socket closes before its end. */
  ask(fields: Readonly<Record<string, unknown>>): Promise<readonly SocketEvent[]>
  /** The next message. */
  next(): Promise<SocketEvent>
  close(): void
  /** Resolves with the code of the close. */
  readonly closed: Promise<number>
}

/** Rejects when the handshake is refused. */
export async function openSocket(url: string, key: string, headers = {}): Promise<SocketClient> {
  const address = `${url.replace(/^http/, 'ws')}/responses`
  const socket = new WebSocket(address, { headers: { Authorization: `Bearer ${key}`, ...headers } })
  const { promise: closed, resolve: onClosed } = Promise.withResolvers<number>()
  const waiting: { resolve: (event: SocketEvent) => void; reject: (reason: Error) => void }[] = []
  const arrived: SocketEvent[] = []
  let isClosed = false
  socket.addEventListener('message', ({ data }) => {
    const event = JSON.parse(String(data)) as SocketEvent
    const first = waiting.shift()
    if (first === undefined) arrived.push(event)
    else first.resolve(event)
  })
  socket.addEventListener('close', ({ code }) => {
    isClosed = true
    for (const { reject } of waiting.splice(0)) reject(new Error(`closed with ${code}`))
    onClosed(code)
  })
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener('open', () => resolve())
    socket.addEventListener('error', () => reject(new Error('the handshake was refused')))
  })
  const next = (): Promise<SocketEvent> => {
    const first = arrived.shift()
    if (first !== undefined) return Promise.resolve(first)
    if (isClosed) return Promise.reject(new Error('closed'))
    return new Promise((resolve, reject) => waiting.push({ resolve, reject }))
  }
  return {
    send: text => socket.send(text),
    async ask(fields) {
      socket.send(JSON.stringify({ type: 'response.create', ...fields }))
      const events: SocketEvent[] = []
      for (;;) {
        const event = await next()
        events.push(event)
        if (LAST.test(event.type)) return events
      }
    },
    next,
    close: () => socket.close(),
    closed,
  }
}
