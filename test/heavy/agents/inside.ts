/**
 * Runs a program in a network namespace of its own, whose only way out is one port of 127.0.0.1 that leads to a socket
 * file: the gateway. `unshare -rnpf node inside.ts PORT SOCKET PROGRAM [WORDS]`.
 */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'

const [port = '', socketFile = '', program = '', ...words] = process.argv.slice(2)
execFileSync('ip', ['link', 'set', 'lo', 'up'])
const server = createServer(client => {
  const gateway = connect(socketFile)
  const end = (): void => {
    client.destroy()
    gateway.destroy()
  }
  client.on('error', end).on('close', end).pipe(gateway)
  gateway.on('error', end).on('close', end).pipe(client)
})
server.listen(Number(port), '127.0.0.1')
await once(server, 'listening')
const child = spawn(program, words, { stdio: ['ignore', 'inherit', 'inherit'] })
// Ctrl-C reaches the whole group: the program decides what it does about it.
process.on('SIGINT', () => undefined)
child.on('error', error => {
  process.stderr.write(`${error.message}\n`)
  process.exit(127)
})
const [status, signal] = (await once(child, 'close')) as [number | null, string | null]
if (signal !== null) process.stderr.write(`ended by ${signal}\n`)
process.exit(status ?? 130)
