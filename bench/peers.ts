/**
 * The peers as subjects: nginx and HAProxy as plain proxies, Portkey as another gateway in JavaScript. Each has its own
 * configuration, process and ports. A peer that is not installed is left out, with the reason.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { family } from './cpu.ts'
import { freePorts, pathOf, type Running, said, start } from './processes.ts'
import type { Scenario, SubjectName } from './scenarios.ts'
import { type Bench, commonHeaders, type Subject, type Target } from './subjects.ts'
import { PATHS } from './wire.ts'

const START_MS = 60_000

/** Nobody between load and upstream: what the others add is the difference to this. */
export function direct(bench: Bench): Subject {
  return {
    name: 'direct',
    version: '',
    pids: () => [],
    target: scenario => asUpstream(bench, scenario, bench.upstream.plain),
    stop: async () => undefined,
  }
}

/** A proxy that passes requests on as they are: its clients speak what the upstream speaks. */
function asUpstream(bench: Bench, scenario: Scenario, port: number): Target {
  return {
    port,
    path: PATHS[scenario.wire],
    headers: commonHeaders(bench),
    wire: scenario.wire,
    modelPrefix: 'bench/',
  }
}

/** nginx as it is set up in front of event streams: one worker, no buffering, kept connections, Debian's access log. */
function nginxConfig(folder: string, ports: readonly [number, number], upstream: Bench['upstream']): string {
  const server = (port: number, scheme: string, name: string): string => `
  server {
    listen 127.0.0.1:${port} backlog=8192;
    location / {
      proxy_pass ${scheme}://${name};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
      proxy_ssl_verify off;
      proxy_ssl_session_reuse on;
    }
  }`
  const pool = (name: string, port: number): string =>
    `upstream ${name} { server 127.0.0.1:${port}; keepalive 8192; }`
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map(kind => `${kind}_temp_path ${folder}/${kind};`)
    .join('\n  ')
  return `daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
${process.getuid?.() === 0 ? 'user root;' : ''}
events { worker_connections 16384; }
http {
  access_log ${folder}/access.log;
  ${temporary}
  keepalive_requests 1000000;
  tcp_nodelay on;
  client_max_body_size 20m;
  ${pool('plain', upstream.plain)}
  ${pool('secure', upstream.tls)}
  ${server(ports[0], 'http', 'plain')}
  ${server(ports[1], 'https', 'secure')}
}
`
}

/** HAProxy with one thread; without `option http-no-delay` it holds small events back. */
function haproxyConfig(ports: readonly [number, number], upstream: Bench['upstream']): string {
  return `global
  nbthread 1
  maxconn 8000
defaults
  mode http
  option http-no-delay
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend plain
  bind 127.0.0.1:${ports[0]}
  default_backend plain
frontend secure
  bind 127.0.0.1:${ports[1]}
  default_backend secure
backend plain
  server one 127.0.0.1:${upstream.plain} pool-max-conn -1
backend secure
  server one 127.0.0.1:${upstream.tls} ssl verify none pool-max-conn -1
`
}

async function startProxy(
  bench: Bench,
  name: SubjectName & ('nginx' | 'haproxy'),
  config: (folder: string, ports: readonly [number, number]) => string,
  words: (file: string, folder: string) => readonly string[],
): Promise<Subject> {
  const command = pathOf(name)
  if (command === null) throw new Error(`${name} is not installed (Debian: apt-get install ${name})`)
  const folder = join(bench.folder, name)
  mkdirSync(folder, { recursive: true })
  const [plain = 0, secure = 0] = await freePorts(2)
  const file = join(folder, `${name}.conf`)
  writeFileSync(file, config(folder, [plain, secure]))
  const one = start(command, words(file, folder), {
    core: bench.proxyCore,
    log: join(folder, 'output.log'),
    readLines: false,
  })
  await accepting(one, plain, name)
  return {
    name,
    version: versionOf(name, command),
    pids: () => family(one.pid),
    target: scenario => asUpstream(bench, scenario, scenario.tls ? secure : plain),
    stop: () => one.stop(),
  }
}

function versionOf(name: string, command: string): string {
  const words = said(command, ['-v'])
  return /(\d+\.\d+\.\d+)/.exec(words)?.[1] ?? (words || name)
}

export function startNginx(bench: Bench): Promise<Subject> {
  return startProxy(
    bench,
    'nginx',
    (folder, ports) => nginxConfig(folder, ports, bench.upstream),
    (file, folder) => ['-p', folder, '-e', join(folder, 'error.log'), '-c', file],
  )
}

export function startHaproxy(bench: Bench): Promise<Subject> {
  return startProxy(
    bench,
    'haproxy',
    (_, ports) => haproxyConfig(ports, bench.upstream),
    file => ['-db', '-f', file],
  )
}

/** Resolves once a connection is taken. @throws Error when the process ends or nothing listens in time */
async function accepting(one: Running, port: number, name: string): Promise<void> {
  const until = performance.now() + START_MS
  while (performance.now() < until) {
    if (one.child.exitCode !== null) throw new Error(`${name} ended with code ${one.child.exitCode}`)
    const isListening = await new Promise<boolean>(resolve => {
      const socket = connect(port, '127.0.0.1')
      socket.on('connect', () => {
        socket.destroy()
        resolve(true)
      })
      socket.on('error', () => resolve(false))
    })
    if (isListening) return
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  throw new Error(`${name} does not listen on port ${port}`)
}

/** See bare.ts. */
export async function startBare(bench: Bench): Promise<Subject> {
  const [plain = 0, secure = 0] = await freePorts(2)
  const { upstream, certificate } = bench
  const words = [plain, secure, upstream.plain, upstream.tls, certificate].map(String)
  const one = start(process.execPath, [join(import.meta.dirname, 'bare.ts'), ...words], {
    core: bench.proxyCore,
    log: join(bench.folder, 'bare.log'),
    readLines: false,
    environment: { NODE_ENV: 'production' },
  })
  await accepting(one, secure, 'bare')
  return {
    name: 'bare',
    version: '',
    pids: () => family(one.pid),
    target: scenario => asUpstream(bench, scenario, scenario.tls ? secure : plain),
    stop: () => one.stop(),
  }
}

const PORTKEY = {
  private: true,
  dependencies: { '@portkey-ai/gateway': '1.15.2' },
  // With later releases of these, which its own ranges allow, its streams answer 500.
  overrides: { hono: '4.9.7', '@hono/node-server': '1.13.7' },
} as const
const PORTKEY_ENTRY = 'node_modules/@portkey-ai/gateway/build/start-server.js'
const INSTALL_MS = 120_000

/**
 * Installs packages into a folder of the user's cache, once.
 * @param entry a file that is there afterwards
 * @throws Error when the registry does not have it
 */
function install(folder: string, wanted: object, entry: string): void {
  if (existsSync(join(folder, entry))) return
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), JSON.stringify(wanted))
  execFileSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts'], {
    cwd: folder,
    stdio: 'ignore',
    timeout: INSTALL_MS,
  })
}

/** @param folder where it is installed, or will be */
export async function startPortkey(bench: Bench, folder: string): Promise<Subject> {
  install(folder, PORTKEY, PORTKEY_ENTRY)
  const [port = 0] = await freePorts(1)
  const one = start(process.execPath, [join(folder, PORTKEY_ENTRY), '--headless', `--port=${port}`], {
    core: bench.proxyCore,
    log: join(bench.folder, 'portkey.log'),
    readLines: false,
    cwd: folder,
    environment: { NODE_ENV: 'production' },
  })
  await accepting(one, port, 'portkey')
  return {
    name: 'portkey',
    version: PORTKEY.dependencies['@portkey-ai/gateway'],
    pids: () => family(one.pid),
    target: scenario => asPortkey(bench, scenario, port, 'portkey'),
    stop: () => one.stop(),
  }
}

/** Provider and address come with each request. */
function asPortkey(bench: Bench, { native, wire: spoken }: Scenario, port: number, name: string): Target {
  const wire = native === true ? spoken : 'openai-chat'
  return {
    port,
    path: PATHS[wire],
    headers: {
      ...commonHeaders(bench),
      [`x-${name}-provider`]: wire === 'anthropic-messages' ? 'anthropic' : 'openai',
      [`x-${name}-custom-host`]: `http://127.0.0.1:${bench.upstream.plain}/v1`,
    },
    wire,
    modelPrefix: '',
  }
}

const LLMOPS = {
  private: true,
  dependencies: { '@llmops/gateway': '0.6.10', '@hono/node-server': '1.13.7' },
} as const
const LLMOPS_ENTRY = 'node_modules/@llmops/gateway/dist/index.mjs'
/** It is an application of Hono without a server. */
const LLMOPS_MAIN = `import { serve } from '@hono/node-server'
import app from '@llmops/gateway'
serve({ fetch: app.fetch, port: Number(process.argv[2]), hostname: '127.0.0.1' })
`

/** A fork of Portkey that is developed further. @param folder where it is installed, or will be */
export async function startLlmops(bench: Bench, folder: string): Promise<Subject> {
  install(folder, LLMOPS, LLMOPS_ENTRY)
  const main = join(folder, 'main.mjs')
  writeFileSync(main, LLMOPS_MAIN)
  const [port = 0] = await freePorts(1)
  const one = start(process.execPath, [main, String(port)], {
    core: bench.proxyCore,
    log: join(bench.folder, 'llmops.log'),
    readLines: false,
    cwd: folder,
    environment: { NODE_ENV: 'production' },
  })
  await accepting(one, port, 'llmops')
  return {
    name: 'llmops',
    version: LLMOPS.dependencies['@llmops/gateway'],
    pids: () => family(one.pid),
    target: scenario => asPortkey(bench, scenario, port, 'llmops'),
    stop: () => one.stop(),
  }
}

const LLMS = { private: true, dependencies: { '@musistudio/llms': '1.0.53' } } as const
const LLMS_ENTRY = 'node_modules/@musistudio/llms/dist/cjs/server.cjs'
/** It has no command of its own; claude-code-router starts it in this way. */
const LLMS_MAIN = `const { default: Server } = require('@musistudio/llms')
const [port, origin, models] = process.argv.slice(2)
const provider = (name, path, use) => ({
  name, api_base_url: origin + path, api_key: 'bench-provider-key', models: models.split(','), transformer: { use },
})
const providers = [provider('chat', '/v1/chat/completions', []), provider('messages', '/v1/messages', ['Anthropic'])]
const initialConfig = { HOST: '127.0.0.1', PORT: port, LOG: false, providers }
new Server({ useJsonFile: false, useEnvFile: false, initialConfig, logger: false }).start()
`

/** The server behind claude-code-router. It has no Responses API. @param folder where it is installed, or will be */
export async function startLlms(bench: Bench, folder: string): Promise<Subject> {
  install(folder, LLMS, LLMS_ENTRY)
  const main = join(folder, 'main.cjs')
  writeFileSync(main, LLMS_MAIN)
  const [port = 0] = await freePorts(1)
  const origin = `http://127.0.0.1:${bench.upstream.plain}`
  const one = start(process.execPath, [main, String(port), origin, bench.plans.join(',')], {
    core: bench.proxyCore,
    log: join(bench.folder, 'llms.log'),
    readLines: false,
    cwd: folder,
    environment: { NODE_ENV: 'production' },
  })
  await accepting(one, port, 'llms')
  return {
    name: 'llms',
    version: LLMS.dependencies['@musistudio/llms'],
    pids: () => family(one.pid),
    target: scenario => ({
      port,
      path: PATHS[scenario.wire],
      headers: commonHeaders(bench),
      wire: scenario.wire,
      modelPrefix: scenario.wire === 'anthropic-messages' ? 'messages,' : 'chat,',
    }),
    stop: () => one.stop(),
  }
}
