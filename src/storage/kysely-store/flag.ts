/** Truth values as columns hold them: 0 and 1. Pure. */

export function flag(value: boolean): number
export function flag(value: boolean | undefined): number | undefined
export function flag(value: boolean | null): number | null
export function flag(value: boolean | null | undefined): number | null | undefined
export function flag(value: boolean | null | undefined): number | null | undefined {
  return typeof value === 'boolean' ? Number(value) : value
}
