/** JSON Schemas of a tool's arguments, and the types that a compiler reads out of them. Nothing of it is left at run time. */

/** A JSON Schema, as far as its parts are read here; any other keyword goes to the model as it is. */
export interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly properties?: { readonly [name: string]: Schema };
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly enum?: readonly unknown[];
  readonly [keyword: string]: unknown;
}

/** The value that a schema describes. */
export type ValueOf<S> = S extends { readonly enum: readonly (infer E)[] }
  ? E
  : S extends { readonly type: "string" }
    ? string
    : S extends { readonly type: "number" | "integer" }
      ? number
      : S extends { readonly type: "boolean" }
        ? boolean
        : S extends { readonly type: "array"; readonly items: infer I }
          ? ValueOf<I>[]
          : S extends { readonly properties: object }
            ? Arguments<S>
            : any;

/** The arguments that a tool with this schema is called with: those that are not required may be missing. */
export type Arguments<S> = S extends { readonly properties: infer P }
  ? { [N in keyof P as N extends Required<S> ? N : never]: ValueOf<P[N]> } & { [N in keyof P as N extends Required<S> ? never : N]?: ValueOf<P[N]> }
  : Record<string, any>;

type Required<S> = S extends { readonly required: readonly (infer N)[] } ? N : never;
