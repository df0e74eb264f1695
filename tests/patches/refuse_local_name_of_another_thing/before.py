from mylib import Loader as DataLoaderLike

loader = DataLoaderLike(dataset)
