/** The HTTP fronts by name, each loaded only where it serves. */
import type { CreateFront } from './front.ts'

/** Loads a front. @throws the error of its library, which may have no build for this system */
export async function loadFront(): Promise<CreateFront> {
  const { createUwsFront } = await import('./uws/front.ts')
  return createUwsFront
}
