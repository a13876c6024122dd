/** The HTTP fronts by name, each loaded only if it is used. */
import type { FRONT_CHOICES } from '../base/settings/setting.ts'
import type { CreateFront } from './front.ts'

export type FrontName = Exclude<(typeof FRONT_CHOICES)[number], 'auto'>

interface LoadedFront {
  readonly name: FrontName
  readonly create: CreateFront
}

const LOADERS: Readonly<Record<FrontName, () => Promise<CreateFront>>> = {
  uws: async () => (await import('./uws/front.ts')).createUwsFront,
  node: async () => (await import('./node/front.ts')).createNodeFront,
}

/**
 * Loads a front. `auto`: `uws`, or `node` if uWebSockets.js has no build for this system.
 * @throws the error of the library
 */
export async function loadFront(choice: FrontName | 'auto'): Promise<LoadedFront> {
  if (choice !== 'auto') return { name: choice, create: await LOADERS[choice]() }
  try {
    return await loadFront('uws')
  } catch {
    return await loadFront('node')
  }
}
