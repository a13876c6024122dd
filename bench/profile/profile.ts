/**
 * Reads V8's samples: time or bytes by stage, by function, and as a call tree. Pure.
 *
 * A stage is a room of `src`, or a folder in one: the cost of a function of Node.js, of a package or of V8
 * counts towards the stage that called it. Code that none of our functions called is listed under its own name.
 */
import type { HeapProfiler, Profiler } from 'node:inspector'

/** A function below another one, with the samples that it holds itself. */
export interface CallNode {
  readonly name: string
  readonly stage: string
  /** Microseconds or bytes, without those of functions that it called. */
  own: number
  /** The same, with them. */
  total: number
  readonly children: CallNode[]
}

interface Frame {
  readonly functionName: string
  readonly url: string
  readonly lineNumber: number
}

/** What V8 counts on the thread but no function of it does. */
const OUTSIDE: Readonly<Record<string, string>> = {
  '(garbage collector)': 'garbage collector',
  '(program)': 'event loop and native code',
  '(idle)': 'idle',
  '(root)': 'event loop and native code',
}

/** @param root address of the `src` folder, with a slash at its end */
export function ofTime(profile: Profiler.Profile, root: string): CallNode {
  const micros = new Map<number, number>()
  const { samples = [], timeDeltas = [] } = profile
  for (const [at, id] of samples.entries()) {
    // The delta of a sample is the time since the one before.
    const spent = timeDeltas[at + 1] ?? 0
    micros.set(id, (micros.get(id) ?? 0) + Math.max(0, spent))
  }
  const byId = new Map(profile.nodes.map(node => [node.id, node]))
  const build = (id: number, stage: string): CallNode => {
    const node = byId.get(id)
    if (node === undefined) throw new Error(`the profile has no node ${id}`)
    const own = stageOf(node.callFrame, root, stage)
    const children = (node.children ?? []).map(child => build(child, own))
    return summed(node.callFrame, root, own, micros.get(id) ?? 0, children)
  }
  const [first] = profile.nodes
  if (first === undefined) throw new Error('the profile is empty')
  return build(first.id, 'event loop and native code')
}

/** @param root address of the `src` folder, with a slash at its end */
export function ofBytes(profile: HeapProfiler.SamplingHeapProfile, root: string): CallNode {
  const build = (node: HeapProfiler.SamplingHeapProfileNode, stage: string): CallNode => {
    const own = stageOf(node.callFrame, root, stage)
    return summed(
      node.callFrame,
      root,
      own,
      node.selfSize,
      node.children.map(child => build(child, own)),
    )
  }
  return build(profile.head, 'event loop and native code')
}

function summed(frame: Frame, root: string, stage: string, own: number, children: CallNode[]): CallNode {
  const total = children.reduce((sum, child) => sum + child.total, own)
  return { name: nameOf(frame, root), stage, own, total, children }
}

/** A frame outside of our sources belongs to the stage that called it. */
function stageOf({ functionName, url }: Frame, root: string, caller: string): string {
  const outside = OUTSIDE[functionName]
  if (outside !== undefined && url === '') return outside
  if (!url.startsWith(root)) return caller
  const folders = url.slice(root.length).split('/').slice(0, -1)
  return folders.length === 0 ? 'src' : folders.slice(0, 2).join('/')
}

function nameOf({ functionName, url, lineNumber }: Frame, root: string): string {
  const name = functionName === '' ? 'anonymous' : functionName
  if (url === '') return name
  const file = url.startsWith(root) ? url.slice(root.length) : url.replace(/^.*\/node_modules\//, '')
  return `${name} ${file}:${lineNumber + 1}`
}

/** Own samples by a key of each node, greatest first. */
export function shares(tree: CallNode, keyOf: (node: CallNode) => string): [key: string, own: number][] {
  const sums = new Map<string, number>()
  const add = (node: CallNode): void => {
    const key = keyOf(node)
    sums.set(key, (sums.get(key) ?? 0) + node.own)
    node.children.forEach(add)
  }
  add(tree)
  return [...sums].filter(([, own]) => own > 0).sort((a, b) => b[1] - a[1])
}
