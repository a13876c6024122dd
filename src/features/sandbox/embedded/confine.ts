/**
 * Removes network access, signals, native code, and workers with other permissions from the embedded engine. `--import`
 * loads it first, in the child process and in each of its workers. There is no known way from the shell or Python to
 * JavaScript; this is a second line of defence. Child process of the sandbox.
 */
import childProcess from 'node:child_process'
import dgram from 'node:dgram'
import dns from 'node:dns'
import { syncBuiltinESMExports } from 'node:module'
import net from 'node:net'
import workerThreads, { isMainThread, type WorkerOptions } from 'node:worker_threads'

/** Only code of this package may run in a worker. */
const PACKAGE_PATH = '/node_modules/just-bash/'

function throwDenied(): never {
  throw new Error('not available in the sandbox')
}

/** Replaces functions of an object, without keeping the originals. */
function deny(target: object, names: readonly string[]): void {
  for (const name of names) {
    if (!(name in target)) continue
    Object.defineProperty(target, name, { value: throwDenied, writable: true, configurable: true })
  }
}

function functionsOf(target: object): string[] {
  return Object.keys(target).filter(name => typeof Reflect.get(target, name) === 'function')
}

/** Without `--permission` a worker would have all rights: Node checks the flag separately for each worker. */
function confineWorkers(): void {
  const Unconfined = workerThreads.Worker
  function Worker(file: string | URL, options: WorkerOptions = {}): workerThreads.Worker {
    const { execArgv: _, env: __, eval: code, ...allowed } = options
    if (!isMainThread || code || !String(file).includes(PACKAGE_PATH)) throwDenied()
    return new Unconfined(file, allowed)
  }
  Worker.prototype = Unconfined.prototype
  Worker.prototype.constructor = Worker
  Object.defineProperty(workerThreads, 'Worker', { value: Worker })
}

deny(net.Socket.prototype, ['connect'])
deny(net.Server.prototype, ['listen'])
deny(net, ['connect', 'createConnection', 'createServer'])
deny(dgram, ['createSocket'])
deny(dgram.Socket.prototype, ['bind', 'connect', 'send'])
deny(dns, functionsOf(dns))
deny(dns.promises, functionsOf(dns.promises))
deny(dns.Resolver.prototype, functionsOf(dns.Resolver.prototype))
deny(childProcess, functionsOf(childProcess))
deny(process, [
  'abort',
  'binding',
  'chdir',
  'dlopen',
  'kill',
  'loadEnvFile',
  '_debugEnd',
  '_debugProcess',
  '_kill',
  '_linkedBinding',
])
confineWorkers()
for (const name of ['fetch', 'WebSocket', 'EventSource']) Reflect.deleteProperty(globalThis, name)
for (const name of Object.keys(process.env)) Reflect.deleteProperty(process.env, name)
syncBuiltinESMExports()
// Python would otherwise show the path of its worker as the variable `_`.
if (!isMainThread) process.argv[1] = '/usr/bin/python3'
