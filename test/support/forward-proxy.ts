/** Real forward proxies, squid and tinyproxy, in a folder and on a port that belong to the test. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { freePort } from './free-port.ts'
import { tempFolder } from './temp-folder.ts'

export const PROXIES = ['squid', 'tinyproxy'] as const
type ProxyProgram = (typeof PROXIES)[number]

/** User and password. What has to be escaped in a URL, squid alone can be told. */
const USERS: Readonly<Record<ProxyProgram, readonly [user: string, password: string]>> = {
  squid: ['gate way', 'p@ss:word/1'],
  tinyproxy: ['gateway', 'secret-1'],
}

const START_TRIES = 20

/** Why tests with this proxy are left out, or false; where everything has to run, missing it is a failure. */
export function without(program: ProxyProgram): string | false {
  const isThere = spawnSync(program, ['-v']).error === undefined
  return isThere || process.env['CI'] === 'true' ? false : `${program} is not installed`
}

interface ForwardProxy {
  /** Without user and password. */
  readonly url: string
  /** With those that it asks for. */
  readonly urlWithUser: string
}

/** Starts a proxy that lets this machine reach every port of this machine. Ends with the test. */
export async function startProxy(t: Test, program: ProxyProgram, withUser: boolean): Promise<ForwardProxy> {
  const folder = tempFolder('sluice-proxy')
  // Both give up their rights.
  chmodSync(folder, 0o777)
  for (let tries = 0; tries < START_TRIES; tries++) {
    const port = await freePort()
    const config = join(folder, `${program}.conf`)
    writeFileSync(config, CONFIGURATIONS[program](port, folder, withUser))
    const words = program === 'squid' ? ['-N', '-f', config] : ['-d', '-c', config]
    const child = spawn(program, words, { stdio: 'ignore' })
    t.teardown(() => stop(child))
    while (child.exitCode === null && !(await answers(port))) await pause(20)
    if (child.exitCode !== null) continue
    const user = USERS[program].map(encodeURIComponent).join(':')
    return { url: `http://127.0.0.1:${port}`, urlWithUser: `http://${user}@127.0.0.1:${port}` }
  }
  throw new Error(`${program} did not start`)
}

type Configuration = (port: number, folder: string, withUser: boolean) => string

const CONFIGURATIONS: Readonly<Record<ProxyProgram, Configuration>> = {
  squid(port, folder, withUser) {
    const [user, password] = USERS.squid
    const users = join(folder, 'users')
    const made = spawnSync('openssl', ['passwd', '-apr1', '-stdin'], { input: password })
    writeFileSync(users, `${user}:${made.stdout.toString().trim()}\n`)
    const auth = withUser
      ? [
          `auth_param basic program /usr/lib/squid/basic_ncsa_auth ${users}`,
          'auth_param basic children 1',
          'acl known proxy_auth REQUIRED',
          'http_access allow known',
          'http_access deny all',
        ]
      : ['http_access allow all']
    return [
      `http_port 127.0.0.1:${port}`,
      ...auth,
      'pid_filename none',
      'pinger_enable off',
      'cache deny all',
      'cache_mem 8 MB',
      'access_log none',
      `cache_log ${join(folder, 'squid.log')}`,
      'cache_store_log none',
      `coredump_dir ${folder}`,
      'shutdown_lifetime 0 seconds',
      '',
    ].join('\n')
  },
  tinyproxy(port, folder, withUser) {
    return [
      `Port ${port}`,
      'Listen 127.0.0.1',
      'Allow 127.0.0.1',
      'Timeout 600',
      'MaxClients 100',
      `LogFile "${join(folder, 'tinyproxy.log')}"`,
      ...(withUser ? [`BasicAuth ${USERS.tinyproxy.join(' ')}`] : []),
      '',
    ].join('\n')
  },
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const closed = once(child, 'close')
  child.kill('SIGKILL')
  await closed
}
