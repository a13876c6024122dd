/** The scenarios of `npm run bench`, as data, and how long they take. Pure. */
import type { Plan, Wire } from './wire.ts'

export const SUBJECTS = [
  'direct',
  'nginx',
  'haproxy',
  'bare',
  'sluice',
  'sluice-again',
  'sluice-undici',
  'sluice-node',
  'sluice-h2',
  'sluice-guarded',
  'sluice-cached',
  'sluice-patterns',
  'sluice-many-patterns',
  'sluice-windowed',
  'sluice-busy',
  'portkey',
  'llmops',
  'llms',
  'before',
  'after',
  'before-again',
] as const
/**
 * Who stands between load and upstream. `direct` is nobody; `bare` is what the gateway is made of and nothing of the
 * gateway; `before` and `after` are the gateway of two revisions;
 * `sluice-undici` asks the upstream by undici, as it does behind a proxy;
 * `sluice-node` serves by the front on `node:http`; `sluice-h2` asks the upstream over HTTP/2, at most 16 streams a
 * connection, and loses one of its connections in every window;
 * `sluice-cached` gives equal requests the answer of the first one;
 * `sluice-guarded` has guardrails on what goes in, `sluice-windowed` on what comes out; `sluice-patterns` and
 * `sluice-many-patterns` have patterns of users alone on what goes in; `sluice-busy` has requests of another caller
 * beside the load, which its task workers look at, while those of the load are not guarded;
 * `sluice-again` and `before-again` are a second process of the same code: what the two differ by is noise.
 */
export type SubjectName = (typeof SUBJECTS)[number]

export interface StreamLoad {
  readonly kind: 'streams'
  /** Open at the same time; each begins anew when it ends. */
  readonly streams: number
  readonly plan: Plan & { readonly kind: 'stream' }
  /** Somebody cuts the texts anew: they are found whole and in order over all pieces of a stream. */
  readonly recut?: true
  /** Beside the streams, where a subject takes it. */
  readonly busy?: BusyLoad
  /** Every second stream is left after this many texts. */
  readonly abortAfter?: number
  /** So many readers more that ask for a flood and never read. */
  readonly stalled?: { readonly readers: number; readonly plan: Plan & { readonly kind: 'flood' } }
}

/** Requests that keep task workers busy. */
export interface BusyLoad {
  /** Each sends its next request when it has the last reply. */
  readonly connections: number
  readonly promptBytes: number
  readonly plan: Plan & { readonly kind: 'json' }
}

export interface JsonLoad {
  readonly kind: 'json'
  /** Each sends its next request when it has the last reply. */
  readonly connections: number
  /** Of the text that is sent; default about a hundred. */
  readonly promptBytes?: number
  /** A stream counts as one reply, read to its end. */
  readonly plan: Plan & { readonly kind: 'json' | 'stream' }
  /** The window ends after this many replies, and not by time. */
  readonly requests?: number
}

export interface Scenario {
  readonly name: string
  readonly title: string
  readonly load: StreamLoad | JsonLoad
  /** TLS between proxy and upstream; clients always speak plain HTTP. */
  readonly tls: boolean
  /** What the upstream speaks. The gateway's clients speak Responses; those of the others what the upstream speaks. */
  readonly wire: Wire
  /** The gateway's clients speak what the upstream speaks too. */
  readonly native?: true
  /** Measured when it is asked for by name only. */
  readonly aside?: true
  readonly subjects: readonly SubjectName[]
  /** CPU per event is what this compares, so one event must be one read. */
  readonly comparesCost: boolean
  readonly rounds: number
  /** Unmeasured load of each subject before the first round; see rig.ts. */
  readonly practiceSeconds: number
  /** Streams open one after the other over this time; then this much warm-up, then the measured window. */
  readonly rampSeconds: number
  readonly warmSeconds: number
  readonly windowSeconds: number
}

/** 48 bytes of text make an event of about 220 bytes, as providers send them. */
const TEXT_BYTES = 48

function paced(events: number, spacingMs: number): StreamLoad['plan'] {
  return { kind: 'stream', events, spacingMs, textBytes: TEXT_BYTES }
}

/** 700 bytes of text make a Responses object of about 1.4 kB. */
const REPLY = { kind: 'json', textBytes: 700 } as const

/** V8 compiles the code of a request for some 30,000 of them: what it costs meanwhile is no cost of production. */
const PRACTICE_SECONDS = 12
const PLAIN = {
  tls: false,
  wire: 'openai-responses',
  comparesCost: false,
  practiceSeconds: PRACTICE_SECONDS,
} as const
const COST = { ...PLAIN, comparesCost: true } as const
const PEERS = ['nginx', 'haproxy', 'sluice'] as const
/** Other gateways in JavaScript, beside Portkey. */
const OTHERS: readonly SubjectName[] = ['llmops', 'llms']

/** The six workloads that other gateways publish: each format, whole and streamed. */
const PUBLISHED: readonly Scenario[] = (
  ['openai-chat', 'openai-responses', 'anthropic-messages'] as const
).flatMap(wire =>
  ([false, true] as const).map(
    (streamed): Scenario => ({
      ...PLAIN,
      name: `published-${wire.slice(wire.indexOf('-') + 1)}${streamed ? '-stream' : ''}`,
      title: `8,000 requests at ten at a time, ${wire} in and out, ${streamed ? 'streams of 8 events, 1 ms apart' : 'JSON replies of 700 bytes of text'}`,
      load: {
        kind: 'json',
        connections: 10,
        plan: streamed ? paced(8, 1) : REPLY,
        requests: 8_000,
      },
      wire,
      native: true,
      aside: true,
      subjects: [
        'nginx',
        'sluice',
        'portkey',
        ...OTHERS.filter(name => name !== 'llms' || wire !== 'openai-responses'),
      ],
      rounds: 1,
      practiceSeconds: 6,
      rampSeconds: 0,
      warmSeconds: 1,
      windowSeconds: 20,
    }),
  ),
)

export const SCENARIOS: readonly Scenario[] = [
  {
    ...PLAIN,
    name: 'json-1',
    title: 'JSON replies of 1.4 kB, one connection',
    load: { kind: 'json', connections: 1, plan: REPLY },
    subjects: ['direct', 'nginx', 'sluice', 'bare'],
    rounds: 3,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 3,
  },
  {
    ...PLAIN,
    name: 'cache-json-1',
    title: 'equal requests, JSON replies of 1.4 kB, one connection: the upstream, and the response cache',
    load: { kind: 'json', connections: 1, plan: REPLY },
    aside: true,
    subjects: ['nginx', 'sluice', 'sluice-cached'],
    rounds: 3,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 3,
  },
  {
    ...PLAIN,
    name: 'json-64',
    title: 'JSON replies of 1.4 kB, 64 connections',
    load: { kind: 'json', connections: 64, plan: REPLY },
    subjects: [...PEERS, 'sluice-undici', 'sluice-h2', 'sluice-node', 'bare', 'portkey'],
    rounds: 3,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 3,
  },
  {
    ...PLAIN,
    name: 'json-256',
    title: 'JSON replies of 1.4 kB, 256 connections',
    load: { kind: 'json', connections: 256, plan: REPLY },
    subjects: PEERS,
    rounds: 2,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 3,
  },
  {
    ...PLAIN,
    name: 'guard-json-16',
    title:
      'JSON replies to prompts of 2 kB, 16 connections, without and with all 9 detectors and 20 patterns',
    load: { kind: 'json', connections: 16, plan: REPLY, promptBytes: 2_000 },
    subjects: ['nginx', 'sluice', 'sluice-guarded'],
    rounds: 3,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 3,
  },
  {
    ...PLAIN,
    name: 'guard-json-1',
    title:
      'JSON replies to prompts of 2 kB, one connection, without and with all 9 detectors and 20 patterns',
    load: { kind: 'json', connections: 1, plan: REPLY, promptBytes: 2_000 },
    subjects: ['nginx', 'sluice', 'sluice-guarded'],
    rounds: 3,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 2,
  },
  {
    ...PLAIN,
    name: 'guard-patterns-64',
    title: 'JSON replies to prompts of 2 kB, 64 connections, without and with 8 and 28 own patterns',
    load: { kind: 'json', connections: 64, plan: REPLY, promptBytes: 2_000 },
    subjects: ['nginx', 'sluice', 'sluice-patterns', 'sluice-many-patterns'],
    rounds: 2,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 2,
  },
  {
    ...PLAIN,
    name: 'guard-relay-20',
    title:
      '20 streams of 60 events, 20 ms apart, without and with 8 detectors and 20 patterns on what the model says, in windows of 1,024 bytes; delay is that of each byte of text',
    load: { kind: 'streams', streams: 20, plan: paced(60, 20), recut: true },
    subjects: ['nginx', 'sluice', 'sluice-windowed'],
    rounds: 3,
    rampSeconds: 1,
    warmSeconds: 0.5,
    windowSeconds: 4,
  },
  {
    ...PLAIN,
    name: 'guard-busy-64',
    title:
      '64 streams, 20 ms apart, without guardrails, without and with all task workers busy with a slow pattern of another caller',
    // Four for the task worker: while it looks at one, others are on their way to the client and back.
    load: {
      kind: 'streams',
      streams: 64,
      plan: paced(100, 20),
      busy: { connections: 4, promptBytes: 10_000, plan: REPLY },
    },
    subjects: ['nginx', 'sluice', 'sluice-busy'],
    rounds: 3,
    rampSeconds: 0.5,
    warmSeconds: 1,
    windowSeconds: 4,
  },
  {
    ...PLAIN,
    name: 'relay-20',
    title: '20 streams of 20 events, 20 ms apart: time to the first token at light load',
    load: { kind: 'streams', streams: 20, plan: paced(20, 20) },
    subjects: ['direct', 'nginx', 'sluice', 'bare', 'portkey'],
    rounds: 3,
    rampSeconds: 0.4,
    warmSeconds: 0.8,
    windowSeconds: 3,
  },
  {
    ...PLAIN,
    name: 'starts-400',
    title: '400 streams of 25 events, 80 ms apart: 200 start each second, and their time to the first event',
    load: { kind: 'streams', streams: 400, plan: paced(25, 80) },
    subjects: ['nginx', 'sluice', 'bare'],
    rounds: 3,
    rampSeconds: 2,
    warmSeconds: 0.5,
    windowSeconds: 4,
  },
  {
    ...COST,
    name: 'relay-256',
    title: '256 streams of 100 events, 20 ms apart',
    load: { kind: 'streams', streams: 256, plan: paced(100, 20) },
    subjects: [...PEERS, 'sluice-undici'],
    rounds: 3,
    rampSeconds: 1.5,
    warmSeconds: 0.5,
    windowSeconds: 4,
  },
  {
    ...COST,
    name: 'relay-256-tls',
    title: '256 streams of 100 events, 20 ms apart, TLS to the upstream',
    load: { kind: 'streams', streams: 256, plan: paced(100, 20) },
    tls: true,
    subjects: [...PEERS, 'bare', 'sluice-again', 'sluice-h2'],
    rounds: 5,
    rampSeconds: 1.5,
    warmSeconds: 0.5,
    windowSeconds: 4,
  },
  {
    ...COST,
    name: 'relay-1000',
    title: '1,000 streams of 50 events, 80 ms apart',
    load: { kind: 'streams', streams: 1000, plan: paced(50, 80) },
    subjects: PEERS,
    rounds: 2,
    rampSeconds: 2,
    warmSeconds: 0.5,
    windowSeconds: 4,
  },
  {
    ...COST,
    name: 'relay-2000',
    title: '2,000 streams of 100 events, 100 ms apart: 20,000 events and 200 starts and ends each second',
    load: { kind: 'streams', streams: 2000, plan: paced(100, 100) },
    subjects: ['nginx', 'sluice', 'bare'],
    rounds: 2,
    rampSeconds: 10,
    warmSeconds: 2,
    windowSeconds: 10,
  },
  {
    ...COST,
    name: 'relay-5000',
    title: '5,000 streams of 20 events, 400 ms apart',
    load: { kind: 'streams', streams: 5000, plan: paced(20, 400) },
    subjects: PEERS,
    rounds: 2,
    rampSeconds: 8,
    warmSeconds: 0.5,
    windowSeconds: 5,
  },
  {
    ...PLAIN,
    name: 'relay-5000-fast',
    title: '5,000 streams of 100 events, 100 ms apart: more than one core can pass',
    load: { kind: 'streams', streams: 5000, plan: paced(100, 100) },
    subjects: ['nginx', 'sluice'],
    rounds: 2,
    rampSeconds: 20,
    warmSeconds: 3,
    windowSeconds: 10,
  },
  {
    ...COST,
    name: 'translate-chat-256',
    title:
      '256 streams of a chat-completions upstream; the gateway answers in Responses events, the others pass bytes',
    load: { kind: 'streams', streams: 256, plan: paced(100, 20) },
    wire: 'openai-chat',
    subjects: PEERS,
    rounds: 3,
    rampSeconds: 1.5,
    warmSeconds: 0.5,
    windowSeconds: 4,
  },
  {
    ...PLAIN,
    name: 'relay-64',
    title: '64 streams, 20 ms apart: what those of slow-readers do without these readers',
    load: { kind: 'streams', streams: 64, plan: paced(100, 20) },
    subjects: ['nginx', 'sluice', 'sluice-node'],
    rounds: 2,
    rampSeconds: 1.5,
    warmSeconds: 1.5,
    windowSeconds: 4,
  },
  {
    ...PLAIN,
    name: 'slow-readers',
    title: '64 streams, 20 ms apart, beside 200 readers of 64 MiB that never read',
    load: {
      kind: 'streams',
      streams: 64,
      plan: paced(100, 20),
      stalled: { readers: 200, plan: { kind: 'flood', mebibytes: 64 } },
    },
    subjects: PEERS,
    rounds: 2,
    rampSeconds: 1.5,
    warmSeconds: 1.5,
    windowSeconds: 4,
  },
  {
    ...PLAIN,
    name: 'slow-readers-100',
    title: '64 streams, 20 ms apart, beside 100 readers of 64 MiB that never read: what is held for each',
    load: {
      kind: 'streams',
      streams: 64,
      plan: paced(100, 20),
      stalled: { readers: 100, plan: { kind: 'flood', mebibytes: 64 } },
    },
    subjects: ['nginx', 'sluice'],
    rounds: 2,
    rampSeconds: 1.5,
    warmSeconds: 1.5,
    windowSeconds: 4,
  },
  {
    ...PLAIN,
    name: 'whole-streams-64',
    title:
      'whole streams of 50 events, 4 ms apart, 64 connections, loaded by autocannon: the next begins when one ends',
    load: { kind: 'json', connections: 64, plan: paced(50, 4) },
    subjects: ['nginx', 'sluice', 'bare', 'portkey'],
    rounds: 2,
    rampSeconds: 0,
    warmSeconds: 1,
    windowSeconds: 4,
  },
  {
    ...PLAIN,
    name: 'aborts',
    title: '128 streams, 20 ms apart, every second client disconnects after 20 events',
    load: { kind: 'streams', streams: 128, plan: paced(100, 20), abortAfter: 20 },
    subjects: PEERS,
    rounds: 2,
    rampSeconds: 1.5,
    warmSeconds: 0.5,
    windowSeconds: 4,
  },
  ...PUBLISHED,
]

/** Starts of the installed package, which are no load of subjects; see cold-start.ts. */
export const COLD_STARTS = { name: 'cold-start', rounds: 5, seconds: 170 } as const
/** Of the first request after a start. */
export const COLD_PLAN = paced(20, 20)

/**
 * The load before the first measured row: streams of few events in quick succession, or JSON requests. What an open
 * stream costs is told by the many more of the row itself.
 */
export const PRACTICE = { streams: 256, events: 12, spacingMs: 4, connections: 64 } as const
/** Subjects that no engine compiles while they run. */
const COMPILED: ReadonlySet<SubjectName> = new Set<SubjectName>(['direct', 'nginx', 'haproxy'])
const COMPILED_PRACTICE_SECONDS = 2

export interface Choice {
  /** Names, or beginnings of names; empty: all. */
  readonly only: readonly string[]
  /** Of these alone; empty: of all. */
  readonly subjects: readonly string[]
  readonly rounds: number | null
  readonly seconds: number | null
  readonly quick: boolean
}

const QUICK_WINDOW_SECONDS = 1
/** Starting the subjects and the load of one scenario. */
const START_SECONDS = 4
/** Processes of a row, and waiting for the upstream to be empty. */
const ROW_SECONDS = 0.7

/** The scenarios of a run with its own rounds and seconds. @throws Error when a name fits none */
export function chosen(choice: Choice, all: readonly Scenario[] = SCENARIOS): Scenario[] {
  for (const name of choice.subjects) {
    if (!(SUBJECTS as readonly string[]).includes(name)) throw new Error(`--subjects: no subject ${name}`)
  }
  for (const name of choice.only) {
    if (!all.some(scenario => scenario.name.startsWith(name))) throw new Error(`--only: no scenario ${name}`)
  }
  return all
    .filter(({ name, aside }) => {
      // A whole name means that one: `relay-256` is not `relay-256-tls`.
      if (choice.only.includes(name)) return true
      if (choice.only.length === 0) return aside !== true
      return choice.only.some(wanted => name.startsWith(wanted) && !all.some(other => other.name === wanted))
    })
    .map(scenario => ({
      ...scenario,
      subjects: scenario.subjects.filter(
        name => choice.subjects.length === 0 || choice.subjects.includes(name),
      ),
      load: choice.quick ? shortened(scenario.load) : scenario.load,
      rounds: choice.rounds ?? (choice.quick ? 1 : scenario.rounds),
      practiceSeconds: choice.quick ? QUICK_WINDOW_SECONDS : scenario.practiceSeconds,
      windowSeconds: choice.seconds ?? (choice.quick ? QUICK_WINDOW_SECONDS : scenario.windowSeconds),
    }))
}

const QUICK_REQUESTS = 400

function shortened(load: Scenario['load']): Scenario['load'] {
  return load.kind === 'json' && load.requests !== undefined ? { ...load, requests: QUICK_REQUESTS } : load
}

/** Seconds of the practice of one subject. */
export function practiceSeconds({ practiceSeconds }: Scenario, name: SubjectName): number {
  return COMPILED.has(name) ? Math.min(COMPILED_PRACTICE_SECONDS, practiceSeconds) : practiceSeconds
}

/** Seconds of one row: one subject in one round. */
export function rowSeconds(scenario: Scenario): number {
  return scenario.rampSeconds + scenario.warmSeconds + scenario.windowSeconds + ROW_SECONDS
}

export function estimateSeconds(scenarios: readonly Scenario[]): number {
  return scenarios.reduce(
    (sum, scenario) =>
      sum +
      START_SECONDS +
      scenario.subjects.reduce((sum, name) => sum + practiceSeconds(scenario, name), 0) +
      scenario.subjects.length * scenario.rounds * rowSeconds(scenario),
    0,
  )
}
