/** The regions in which data can be required to stay. Pure. */

export const DATA_REGIONS = ['europe', 'us'] as const
export type DataRegion = (typeof DATA_REGIONS)[number]

/** The regions that a guardrail can allow and a credential can declare; `global`: no promise. */
export const REGIONS = ['global', ...DATA_REGIONS] as const
export type Region = (typeof REGIONS)[number]
