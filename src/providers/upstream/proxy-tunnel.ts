/** Tunnels through an egress proxy to an address that was already checked, so that the proxy resolves no name. */
import { request as httpRequest, type RequestOptions } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { Socket } from 'node:net'

/**
 * Asks a proxy for a tunnel. Rejects with the reason of the signal, or with an error whose message contains nothing
 * from the proxy. NODE_TLS_REJECT_UNAUTHORIZED has no effect.
 * @param target `ADDRESS:PORT`, with an IPv6 address in brackets
 */
export function throughProxy(proxy: string, target: string, signal: AbortSignal): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  const url = new URL(proxy)
  const credentials = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`
  const options: RequestOptions & { readonly rejectUnauthorized: true } = {
    method: 'CONNECT',
    path: target,
    headers: {
      host: target,
      ...(url.username === ''
        ? {}
        : { 'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}` }),
    },
    agent: false,
    signal,
    rejectUnauthorized: true,
  }
  // The credentials are sent in their own field only.
  url.username = ''
  url.password = ''
  const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, options)
  request.once('error', error => reject(signal.aborted ? (signal.reason as Error) : error))
  request.once('response', reply => {
    reply.destroy()
    reject(new Error('no tunnel'))
  })
  request.once('connect', (reply, socket, head) => {
    socket.on('error', () => undefined)
    if (reply.statusCode === 200 && head.length === 0) return resolve(socket)
    socket.destroy()
    reject(new Error('no tunnel'))
  })
  request.end()
  return promise
}
